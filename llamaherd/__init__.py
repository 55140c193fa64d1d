"""Declare GPU rigs in YAML; get verified LLM servers."""

__version__ = "0.1.0"
