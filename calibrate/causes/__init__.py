"""Causes of a slow setting, one file a family. Each finder takes a Case and yields what it finds."""
