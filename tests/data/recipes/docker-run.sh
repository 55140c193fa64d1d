$ docker run -d --name llama --restart unless-stopped \
    -v ~/models:/models -p 8000:8000 \
    ghcr.io/ggml-org/llama.cpp:server-cuda \
    -m /models/Qwen3-30B-A3B-Q4_K_M.gguf -c 16384 -ngl 99 -fa on
