"""Checks of a rig that need no host: one module per kind of mistake."""
