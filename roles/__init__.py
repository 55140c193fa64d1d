"""Roles, in the order in which a host needs them. Each makes one thing true, by one look and the steps after it."""
