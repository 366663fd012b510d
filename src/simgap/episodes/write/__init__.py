"""Episodes to disk, one file at a time."""
