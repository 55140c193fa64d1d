llama-server -m m.gguf -c 131072 -np 4 -b 2048 -ub 512 --metrics --slots
