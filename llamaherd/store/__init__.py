"""The models on a host: inventory, users, unused files, and hashes."""
