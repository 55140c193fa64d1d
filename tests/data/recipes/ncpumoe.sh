sudo nvidia-smi -pm 1
sudo nvidia-smi -pl 280
llama-server -m /mnt/c/Users/Tom/models/gpt-oss-120b-mxfp4-00001-of-00003.gguf -ngl 99 --n-cpu-moe 30 -fa -c 65536 --jinja
