"""One host: reached, and asked what it looks like."""
