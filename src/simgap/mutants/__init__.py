"""Known-bads: one planted fault each."""
