"""From a rig and its lock to its plan."""
