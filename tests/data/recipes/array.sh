#!/usr/bin/env bash
set -euo pipefail
ARGS=(
  --model "$HOME/models/Qwen3-Coder-30B-A3B-Q5_K_M.gguf"
  --ctx-size 131072      # all of it
  --n-gpu-layers all
  --no-mmap
  --draft-max 16
)
EXTRA="--host 127.0.0.1 --port 9000"
if [[ -n "${DEBUG:-}" ]]; then
  ARGS+=(--verbose)
fi
exec llama-server "${ARGS[@]}" $EXTRA
