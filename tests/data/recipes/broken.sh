llama-server -m model.gguf \  
  -c 8192 \
  # eight thousand
  --port 8080
