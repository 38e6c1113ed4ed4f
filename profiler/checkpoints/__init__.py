"""Files of weights, read by their headers only."""
