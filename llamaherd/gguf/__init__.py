"""GGUF files: their headers, without the weights."""
