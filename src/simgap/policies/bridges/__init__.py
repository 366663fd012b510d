"""Policies that run somewhere else, or in somebody else's code, behind the contract of :mod:`simgap.policies.base`."""
