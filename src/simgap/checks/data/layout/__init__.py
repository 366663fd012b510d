"""Files, index rows, columns and names."""
