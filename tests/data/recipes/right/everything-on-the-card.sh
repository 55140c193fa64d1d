llama-server --model /srv/m.gguf --n-gpu-layers all --flash-attn auto --ctx-size 65536
