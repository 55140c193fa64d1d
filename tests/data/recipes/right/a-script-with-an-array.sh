#!/bin/bash
args=(
  --model /srv/a.gguf  # the model
  --ctx-size 32768
  -ngl 99
)
[[ -n "${DEBUG:-}" ]] && args+=(--verbose)
exec llama-server "${args[@]}"
