"""Real servers and hosts that tests talk to."""
