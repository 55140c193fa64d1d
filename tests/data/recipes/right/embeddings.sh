llama-server -m e.gguf --embeddings --pooling mean -c 8192 -b 8192 -ub 8192
