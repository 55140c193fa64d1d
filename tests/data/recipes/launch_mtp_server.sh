#!/usr/bin/env bash
# launch_mtp_server.sh
export INFERENCE_MODEL_PATH="./models/qwen3-35b-a3b-instruct-q4_k_xl.gguf"
export INFERENCE_CTX_SIZE=65536
export INFERENCE_GPU_LAYERS=99
export INFERENCE_MTP_DRAFT=2
export INFERENCE_THREADS=$(nproc)
export INFERENCE_PORT=8080
./build/bin/llama-server \
--model "${INFERENCE_MODEL_PATH}" \
--ctx-size "${INFERENCE_CTX_SIZE}" \
--gpu-layers "${INFERENCE_GPU_LAYERS}" \
--threads "${INFERENCE_THREADS}" \
--mtp-draft "${INFERENCE_MTP_DRAFT}" \
--port "${INFERENCE_PORT}" \
--host 0.0.0.0 \
--flash-attn \
--cache-reuse \
--no-mmap
