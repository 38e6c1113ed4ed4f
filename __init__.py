"""specgauge: forecasts, checks and recommends settings of speculative decoding."""

__version__ = "0.1.0"
