"""Timestamps, rates, gaps and repeated frames."""
