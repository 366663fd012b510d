"""Is the evaluation itself valid."""
