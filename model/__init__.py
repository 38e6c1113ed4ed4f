"""Pure functions over frozen values: acceptance, cost, forecast, search. No file, no clock, no engine."""
