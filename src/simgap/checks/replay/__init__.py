"""Do recorded actions do on the robot what they did when recorded: convention and normalisation."""
