"""Are the data intact."""
