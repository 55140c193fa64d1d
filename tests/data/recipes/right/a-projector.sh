llama-server -m m.gguf --mmproj p.gguf -c 16384 -ngl 99
