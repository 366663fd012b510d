"""Are the chunks executed as they should be."""
