"""Engines by kind: each module knows one engine's build options and flag dialect."""

from llamaherd.engines.dialect import Dialect, Server
from llamaherd.engines.ik_llama_cpp import IkLlamaCpp
from llamaherd.engines.llama_cpp import LlamaCpp

DIALECTS: dict[str, Dialect] = {dialect.kind: dialect for dialect in (LlamaCpp(), IkLlamaCpp())}

__all__ = ["DIALECTS", "Dialect", "Server"]
