# Somebody else may have taken memory of a GPU: that is known before anything is stopped.
gpu_pids=$(systemctl show -P MainPID llama-coder.service; docker top llama-coder -eo pid 2>/dev/null | sed 1d)
lacking=$(no_room_after gpus '[{"name": "big", "at": "0", "need": 7}]' "$gpu_pids" "")
if [ "$lacking" ]; then
    printf '%s\n' "llama-coder is left as it is: $lacking" "  help: end what else uses that GPU, or declare what fits beside it" >&2
    exit 1
fi
