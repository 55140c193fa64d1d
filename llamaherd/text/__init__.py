"""Texts: characters, numbers, quoting, terminals, and files within bounds."""
