llama-cli -m m.gguf -p 'Why is the sky blue?' -n 200 -no-cnv
