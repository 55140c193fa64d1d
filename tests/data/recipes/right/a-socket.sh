llama-server -m m.gguf --host /run/llama/llama.sock
