#!/bin/bash
git clone https://github.com/ikawrakow/ik_llama.cpp
cd ik_llama.cpp
cmake -B build -DGGML_CUDA=ON -DGGML_CUDA_FA_ALL_QUANTS=ON -DCMAKE_CUDA_ARCHITECTURES=86
cmake --build build --config Release -j 12
CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-server -m /models/DeepSeek-V3-IQ4_KS-00001-of-00009.gguf \
  -c 32768 -ctk q8_0 -mla 3 -fa on -amb 512 -fmoe -rtr \
  -ot "exps=CPU" -ngl 99 --threads 16 --port 8082
