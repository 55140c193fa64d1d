VLLM_API_KEY=$KEY vllm serve Qwen/Qwen3-8B --enable-auto-tool-choice --tool-call-parser hermes
