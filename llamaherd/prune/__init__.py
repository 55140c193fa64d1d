"""What lies on a host beside models and is of no use any more."""
