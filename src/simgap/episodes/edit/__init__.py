"""Convert, merge, split and recompute whole datasets."""
