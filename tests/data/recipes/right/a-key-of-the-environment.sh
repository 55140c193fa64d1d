LLAMA_API_KEY="$(cat ~/.llama-key)" llama-server -m m.gguf --host 0.0.0.0
