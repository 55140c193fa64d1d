llama-server -m r.gguf --reranking --port 8082
