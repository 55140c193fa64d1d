"""NVIDIA's driver on hosts: install, keep, load, judge and restore it. Nothing here knows a plan."""
