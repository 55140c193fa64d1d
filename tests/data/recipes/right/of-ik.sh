git clone https://github.com/ikawrakow/ik_llama.cpp
cd ik_llama.cpp
./build/bin/llama-server -m m.gguf -fa on -c 32768 -ngl 99 -rtr -amb 512
