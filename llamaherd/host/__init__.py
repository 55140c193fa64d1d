"""SSH connections to hosts, the program that runs there, and the state of a host."""
