llama-server -m m.gguf -fa on -ctk q8_0 -ctv q8_0 -c 131072
