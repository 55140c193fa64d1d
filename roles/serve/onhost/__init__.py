"""Serve's part of the program on hosts: inspect, switch, watch and remove servers. Nothing here imports a plan."""
