"""From evidence to a calibrated model, a recommendation and its check."""
