"""Store, read, compare and evaluate the results of measurements."""
