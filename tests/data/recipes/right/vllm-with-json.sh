vllm serve a/b --host 127.0.0.1 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
