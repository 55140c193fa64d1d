#!/bin/sh
./ik_llama.cpp/build/bin/llama-sweep-bench -m model.gguf -c 8192 -ub 512 -ngl 99
