"""Facts about hardware, drivers, packages and releases, each with its source."""
