"""Statistics that hold at 3 to 20 samples, as measurements of servers have: pure functions of numbers."""
