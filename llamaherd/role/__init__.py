"""What a role is, and what roles share."""
