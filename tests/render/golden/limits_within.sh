<<< limits.sh: # Holds GPUs to one power limit after the other, as it is told on the same pipe. What they were held to comes back
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
<<< limits.sh: # A guard of before has what it waits for by now.
>>> rm -rf /run/llamaherd/limits && (umask 077 && mkdir -p /run/llamaherd/limits) || exit 1
for uuid in GPU-3090; do
<<< limits.sh:     now=$(ask "$uuid" power.limit)
>>>         return
    for uuid in GPU-3090; do
<<< limits.sh:         said=$(timeout 60 nvidia-smi -i "$uuid" -pl "$1" 2>&1 | grep . | head -n 1 | cut -c -200)
>>> kill $words 2>/dev/null
