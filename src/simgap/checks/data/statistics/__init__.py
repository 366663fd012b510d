"""Stored statistics against the data and against themselves."""
