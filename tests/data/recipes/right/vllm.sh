vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --port 8000 --max-model-len 32768
