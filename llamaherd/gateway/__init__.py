"""What people are given who use a gateway: a key each, and what their programs must be told."""
