llama-server -m m.gguf -ngl 99 -ot 'blk\.(1[0-9]|2[0-9])\.ffn_.*_exps=CPU' -c 32768
