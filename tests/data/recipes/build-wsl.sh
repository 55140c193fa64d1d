# Install CUDA toolkit and cuBLAS for WSL2, then compile llama.cpp with MTP flags enabled:
git clone https://github.com/ggerganov/llama.cpp.git
cd llama.cpp
cmake -B build -DGGML_CUDA=ON -DLLAMA_BUILD_SERVER=ON
cmake --build build --config Release -j $(nproc)
# Download and convert to GGUF
huggingface-cli download Qwen/Qwen3-35B-A3B-Instruct-GGUF \
--include "*Q4_K_XL*" --local-dir ./models
# Verify expert routing integrity
./build/bin/llama-cli -m ./models/qwen3-35b-a3b-instruct-q4_k_xl.gguf \
--prompt "Verify routing" --n-gpu-layers 99 --verbose 2>&1 | grep -i "expert"
# Monitor cache hit rates
curl -s http://localhost:8080/v1/internal/health
