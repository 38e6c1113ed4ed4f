"""A profile to be shared: every field of its records is let through by a rule of its own, or left out."""
