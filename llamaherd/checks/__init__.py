"""What can be known wrong about a rig before any host is touched: one module per kind of mistake."""
