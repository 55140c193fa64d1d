llama-server -m m.gguf --temp 0.7 --top-p 0.8 --top-k 20 --min-p 0 --repeat-penalty 1.05
