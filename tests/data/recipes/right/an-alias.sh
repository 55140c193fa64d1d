llama-server -m m.gguf -a "qwen" --log-file /var/log/llama.log --timeout 600
