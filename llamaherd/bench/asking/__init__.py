"""Asking a server: our prompts, one request, its answer piece by piece, and the run that it is."""
