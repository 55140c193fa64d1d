"""Reports of measurements: one HTML page, Markdown, CSV, JSON, or tables on a terminal."""
