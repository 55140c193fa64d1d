"""Texts of every kind: characters, quoting, units, templates, files within bounds."""
