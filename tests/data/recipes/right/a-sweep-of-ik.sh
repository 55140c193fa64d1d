llama-sweep-bench -m m.gguf -c 8192 -ub 1024 -fa on -ngl 99
