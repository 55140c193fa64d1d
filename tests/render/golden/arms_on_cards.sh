<<< arms.sh: # Starts the arms of a comparison one at a time, as it is told on the same pipe. What serves is stopped meanwhile, and
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'measuring llama-reasoner' || exit 1
<<< arms.sh: # A guard of before has what it waits for by now.
>>> sys.exit(bool(lacking))
# Somebody else may have taken memory of a GPU: that is known before anything is stopped.
gpu_pids=$(systemctl show -P MainPID llama-reasoner.service; docker top llama-reasoner -eo pid 2>/dev/null | sed 1d; systemctl show -P MainPID llama-reasoner.service; docker top llama-reasoner -eo pid 2>/dev/null | sed 1d; systemctl show -P MainPID llama-chat.service; docker top llama-chat -eo pid 2>/dev/null | sed 1d)
lacking=$(no_room_after gpus '[{"name": "new", "at": "GPU-5090", "need": 21474836480}, {"name": "old", "at": "GPU-3090", "need": 21474836480}]' "$gpu_pids" "")
if [ "$lacking" ]; then
    printf '%s\n' "llama-reasoner is left as it is: $lacking" "  help: end what else uses that GPU, or declare what fits beside it" >&2
    exit 1
fi
lacking=$(no_room_after ram 7516192768 "$(systemctl show -P MainPID llama-reasoner.service; systemctl show -P MainPID llama-chat.service; )" "")
if [ "$lacking" ]; then
    printf '%s\n' "llamaherd-arm-a-reasoner is not started: $lacking" "  help: end what else holds RAM, or compare what fits" >&2
    exit 1
fi
served=''
case $(systemctl show -P ActiveState llama-reasoner.service) in active | activating | reloading) served="$served llama-reasoner.service" ;; esac
case $(systemctl show -P ActiveState llama-chat.service) in active | activating | reloading) served="$served llama-chat.service" ;; esac
(umask 077 && rm -rf /run/llamaherd/arms && mkdir -p /run/llamaherd/arms) && printf '%s' "$served" >/run/llamaherd/arms/served && cat >/run/llamaherd/arms/back <<'END' || exit 1
# What is measured ends, and what served before serves again: whoever began it may be gone.
systemctl stop llamaherd-arm-a-reasoner.service 2>/dev/null
rm -f /run/systemd/system/llamaherd-arm-a-reasoner.service /run/llamaherd/started/llamaherd-arm-a-reasoner
systemctl daemon-reload
systemctl reset-failed llamaherd-arm-a-reasoner.service 2>/dev/null
<<< arms.sh: if [ -s /run/llamaherd/arms/served ]; then
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /run/systemd/system/llamaherd-arm-a-reasoner.service /run/systemd/system 0644 root <<'END'
base64|<<< systemd_cuda_two_cards.service: # Written by llamaherd for instance `reasoner` of rig `duo`: change the inventory, not this file.
base64|>>> # What it starts with, for whoever wants to know later what has changed since.
base64|ExecStartPre=-+/opt/llamaherd/libexec/started record unit llamaherd-arm-a-reasoner - /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc
base64|<<< systemd_cuda_two_cards.service: ExecStart=/opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf --alias 35b --ctx-size 262144 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 127.0.0.1 --port 8001 --metrics --gpu-layers all --spec-type draft-mtp --spec-draft-n-max 3
base64|>>> # Without CUDA it would be healthy as well, on the CPU.
base64|ExecStartPost=/opt/llamaherd/libexec/gpu-check every "journalctl -u llamaherd-arm-a-reasoner" ${MAINPID} GPU-5090 GPU-3090
base64|<<< systemd_cuda_two_cards.service: TimeoutStartSec=360
base64|>>> WantedBy=multi-user.target
base64|
base64|
<<< arms.sh: base64|# It lasts for a block at most: it comes back neither by itself nor at a boot, and ends where nobody ends it.
>>> base64|RuntimeMaxSec=2100

<<< arms.sh: ) && systemctl daemon-reload || exit 1
>>> let_in() { nft delete table inet llamaherd-shut 2>/dev/null || :; }
drain /var/lib/llamaherd/kept/llama-reasoner/last/asked
systemctl stop llama-reasoner.service
let_in
<<< arms.sh: drain /var/lib/llamaherd/kept/llama-chat/last/asked
>>>     # In braces: a shell keeps what it closes for a function of its own, and with that the locks.
    start-A) { start A llamaherd-arm-a-reasoner.service; } </dev/null 7>&- 8>&- & ;;
    stop-)
        systemctl stop llamaherd-arm-a-reasoner.service 2>/dev/null
        systemctl reset-failed llamaherd-arm-a-reasoner.service 2>/dev/null
<<< arms.sh:         echo stopped
>>> kill $words 2>/dev/null
