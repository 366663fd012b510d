"""Is the policy given what it was trained on."""
