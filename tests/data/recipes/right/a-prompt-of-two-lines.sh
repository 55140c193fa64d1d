llama-cli -m m.gguf -no-cnv -p "First line
second line, it's longer"
