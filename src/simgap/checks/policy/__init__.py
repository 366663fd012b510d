"""The policy itself, blamed last."""
