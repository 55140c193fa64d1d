hf download unsloth/Qwen3-8B-GGUF --include '*Q4_K_M*' --local-dir models
