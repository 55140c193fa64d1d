#!/bin/sh
if [ "$1" = big ]; then
  llama-server -m /srv/big.gguf -ngl 99 --n-cpu-moe 20
else
  llama-server -m /srv/small.gguf -ngl 99
fi
