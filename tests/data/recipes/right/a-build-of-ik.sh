git clone https://github.com/ikawrakow/ik_llama.cpp && cd ik_llama.cpp
cmake -B build -DGGML_CUDA=ON -DGGML_NCCL=OFF -DGGML_SCHED_MAX_COPIES=1
cmake --build build -j
