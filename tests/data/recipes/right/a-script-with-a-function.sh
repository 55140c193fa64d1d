#!/bin/bash
serve() {
  local model=$1 port=$2
  llama-server -m "$model" --port "$port" -ngl 99
}
serve /srv/a.gguf 8081
