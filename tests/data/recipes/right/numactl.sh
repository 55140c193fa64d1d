#!/bin/sh
numactl --cpunodebind=0 --membind=0 llama-server -m model.gguf --numa numactl -t 16 -c 8192
