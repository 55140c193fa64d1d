"""Serve's part of the program on hosts: switch a server, watch it, remove it. Nothing here knows a plan."""
