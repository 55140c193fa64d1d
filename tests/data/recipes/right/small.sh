llama-server -m model.gguf
