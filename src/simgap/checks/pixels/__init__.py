"""Do the robot's cameras see what the simulator's see."""
