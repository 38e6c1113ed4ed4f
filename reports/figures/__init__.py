"""The figures of the report: each a finding, panels that show it, and the numbers in a table."""
