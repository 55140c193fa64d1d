llama-server -m m.gguf --jinja --reasoning off
