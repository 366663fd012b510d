"""Checks: one file a family, in the order of diagnosis."""
