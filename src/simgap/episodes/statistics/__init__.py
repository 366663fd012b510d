"""Exact statistics and the files that hold them."""
