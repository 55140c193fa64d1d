numactl --cpunodebind=0 --membind=0 llama-server -m m.gguf -t 16 --numa numactl
