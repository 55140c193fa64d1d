"""Declare GPU rigs in YAML; get verified LLM servers."""

__version__ = "0.2.0"
