"""Files of other people beside episodes: trial logs, pairs of rates, statistics, policy files, actuator logs; what they say and what is wrong with it."""
