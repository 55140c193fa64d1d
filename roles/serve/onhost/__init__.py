"""Serve's part of the program on hosts: inspect servers, switch one, watch it, remove it. Nothing here knows a plan."""
