#!/usr/bin/env bash
set -euo pipefail
MODEL=${1:-/srv/models/a.gguf}
PORT=${PORT:-8080}
exec llama-server \
  --model "$MODEL" \
  --port "$PORT" \
  --ctx-size 32768 \
  "${@:2}"
