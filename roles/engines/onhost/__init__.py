"""Engines' part of the program on hosts: compile an engine, admit a finished build, and vouch for one."""
