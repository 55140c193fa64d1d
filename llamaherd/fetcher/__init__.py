"""Brings the files of models to a host: runs there, on the standard library of Python 3.10 and nothing else."""
