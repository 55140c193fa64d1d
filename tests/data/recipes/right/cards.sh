nvidia-smi --query-gpu=name,memory.used,power.draw --format=csv,noheader -l 5
