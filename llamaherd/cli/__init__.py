"""`herd`, the command: a module for each of its commands, of its name."""
