"""Tables of trials as people keep them."""
