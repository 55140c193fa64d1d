"""GGUF files, as far as their headers go: what a model is made of, without a byte of its weights."""
