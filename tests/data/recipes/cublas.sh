git clone https://github.com/ggml-org/llama.cpp && cd llama.cpp
make clean && LLAMA_CUBLAS=1 make -j8
cmake -B build -DLLAMA_CUBLAS=ON
./server -m models/llama-2-13b.Q4_K_M.gguf -c 4096 -ngl 43
