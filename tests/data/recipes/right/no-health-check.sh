#!/bin/sh
docker run --no-healthcheck -v /srv/models:/models:ro -p 127.0.0.1:8000:8000 \
  ghcr.io/ggml-org/llama.cpp:server-b11434@sha256:0000000000000000000000000000000000000000000000000000000000000000 \
  -m /models/a.gguf -c 8192 --port 8000 --host 0.0.0.0
