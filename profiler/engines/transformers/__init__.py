"""The transformers engine: Hugging Face checkpoints in process on torch."""
