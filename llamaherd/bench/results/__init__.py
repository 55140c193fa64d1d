"""What was measured: a result with everything in it, its text and files, what it tells, and what speaks against it."""
