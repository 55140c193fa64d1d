"""Fetch, adopt and share the files of models: a program of its own on a host, by Python 3.10's library."""
