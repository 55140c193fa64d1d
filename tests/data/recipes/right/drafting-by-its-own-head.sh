llama-server -m m.gguf --spec-type draft-mtp --spec-draft-n-max 3 -np 1 -c 32768 -fa on
