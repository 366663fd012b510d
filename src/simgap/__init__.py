"""simgap gets a robot policy from simulation to reality, and says honestly which thing is broken on the way."""

__version__ = "0.1.0"
