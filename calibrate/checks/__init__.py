"""The check before and after a profile: memory of drafters, sampling, the seven points."""
