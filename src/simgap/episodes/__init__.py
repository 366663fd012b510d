"""What happened, as data: the LeRobot store, its reader, exact statistics and the frame cache."""
