"""Results of others as ours: what they do not tell stays unknown, and each result says what is less known of it."""
