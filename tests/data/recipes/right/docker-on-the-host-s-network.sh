docker run --gpus all --network host -v /m:/m ghcr.io/ggml-org/llama.cpp:server-cuda@sha256:0000000000000000000000000000000000000000000000000000000000000000 -m /m/a.gguf --host 127.0.0.1 --port 8080
