"""What joints are told against what they do."""
