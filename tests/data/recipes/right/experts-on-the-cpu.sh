llama-server -m m.gguf -ngl 99 --n-cpu-moe 30 -fa on -c 65536 -t 12
