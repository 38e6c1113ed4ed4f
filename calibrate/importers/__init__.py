"""Measurements that specgauge did not make: one module a format, each says what it could learn and what not."""
