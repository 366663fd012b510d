"""What values can be at all: ranges, units, dead joints, starts and ends of episodes."""
