"""What single parts of a look at a host tell: each module reads what its part of `templates/observe/` printed."""
