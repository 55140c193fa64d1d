"""The search for the keys with which an instance is fastest, within memory and quality."""
