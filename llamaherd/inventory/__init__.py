"""What people write: models, YAML with places, inheritance."""
