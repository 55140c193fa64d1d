"""What the fleet does now: asked of its hosts, and shown."""
