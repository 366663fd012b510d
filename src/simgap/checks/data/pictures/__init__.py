"""Stored and decoded pictures."""
