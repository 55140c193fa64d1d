llama-server -m m.gguf --load-mode mlock
