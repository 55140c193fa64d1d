"""What is wrong or doubtful, as a value, and how people are told."""
