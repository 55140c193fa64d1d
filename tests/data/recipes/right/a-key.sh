llama-server -m m.gguf --host 0.0.0.0 --port 8080 --api-key-file /etc/llama/keys
