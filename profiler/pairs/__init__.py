"""Draft and target held against each other: tokens, sizes, rollback, and what engines accept."""
