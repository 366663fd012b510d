"""Robots behind one interface, and the surrogate that stands in for one."""
