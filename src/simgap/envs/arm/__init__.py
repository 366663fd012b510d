"""The SO-101-class arm: one model, shared by every arm task."""
