"""Facts about the world, each with its source."""
