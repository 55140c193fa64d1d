llama-bench -m m.gguf -ngl 99 -fa 1 -p 512,2048 -n 128 -r 5
