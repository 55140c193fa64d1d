llama-server -m model.gguf --port 8081 -c 32768 -ngl 99 -fa on
