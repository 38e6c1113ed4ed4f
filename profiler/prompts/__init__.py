"""The user's own prompts: read from a file, drawn from it, measured against the context, found again."""
