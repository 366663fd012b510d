"""Trials on a robot: planned, run one by one, each logged as a full episode."""
