"""Two results beside each other: what differs, how much faster, and whether that is known."""
