"""Comparisons in blocks: two servers as units of their own, started in turns, until it is known which is faster."""
