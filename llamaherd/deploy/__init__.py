"""The edge to pyinfra."""
