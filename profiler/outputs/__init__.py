"""What comes out with speculation held against what comes out without it."""
