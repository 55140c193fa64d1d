CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 llama-server -m m.gguf -ngl 99 -ts 3,1 -sm layer
