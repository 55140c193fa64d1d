vllm serve Qwen/Qwen3-32B --host 127.0.0.1 --tensor-parallel-size 2 --gpu-memory-utilization 0.92
