"""Physics and latency of the robot."""
