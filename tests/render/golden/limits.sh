# Holds GPUs to one power limit after the other, as it is told on the same pipe. What they were held to comes back
# whatever ends this: the kernel opens this script's lock with its process, which ends the guard, a unit of systemd, and
# what systemd does after that brings it back. After a boot the driver knows nothing of it anyway.
<<< arms.sh: trap : PIPE
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
# Not for longer than whoever began this listens to silence: then it would never hear for whom it waits.
hold 8 host 60 'measuring with other power limits' || exit 1
# A guard of before has what it waits for by now.
systemctl stop llamaherd-limits.service 2>/dev/null
open_lock 7 limits && flock -w 5 7 || exit 1
# UUID, and a field of nvidia-smi's; watts, or nothing where it tells none.
ask() { timeout 60 nvidia-smi -i "$1" --query-gpu="$2" --format=csv,noheader,nounits 2>/dev/null | grep -x '[0-9.]*'; }
rm -rf /run/llamaherd/limits && (umask 077 && mkdir -p /run/llamaherd/limits) || exit 1
for uuid in GPU-3090 GPU-5090; do
    now=$(ask "$uuid" power.limit)
    echo "gpu $uuid ${now:--} $(ask "$uuid" power.min_limit) $(ask "$uuid" power.max_limit)"
    [ -z "$now" ] || echo "$uuid $now" >>/run/llamaherd/limits/before
done
cat >/run/llamaherd/limits/back <<'END' || exit 1
# What GPUs were held to before comes back: whoever began it may be gone.
while read -r uuid watts; do
    timeout 60 nvidia-smi -i "$uuid" -pl "$watts" </dev/null >/dev/null || echo "GPU $uuid was held to $watts W, and is not again" >&2
done </run/llamaherd/limits/before

END
systemd-run -q --collect --unit=llamaherd-limits.service --description='Brings back power limits after a measurement' -p Type=exec -p RuntimeMaxSec=1500 -p 'ExecStopPost=/bin/sh /run/llamaherd/limits/back' -p 'ExecStopPost=/bin/rm -rf /run/llamaherd/limits' flock "$locks/limits" true 7>&- 8>&- || exit 1
# It is awaited: they are back then.
at_exit() { systemctl stop llamaherd-limits.service 2>/dev/null; }
trap at_exit EXIT
trap 'exit 1' HUP INT TERM
<<< arms.sh: # A word now and then: the connection to somebody whose line was cut is given up then.
>>> words=$!
# watts: holds all of them to it, and says why not. Without its guard, nothing would bring them back.
hold_all() {
    if ! systemctl -q is-active llamaherd-limits.service; then
        echo 'failed its guard, llamaherd-limits.service, has ended'
        return
    fi
    for uuid in GPU-3090 GPU-5090; do
        said=$(timeout 60 nvidia-smi -i "$uuid" -pl "$1" 2>&1 | grep . | head -n 1 | cut -c -200)
        now=$(ask "$uuid" power.limit)
        now=${now%.*}
        if [ -z "$now" ] || [ $((now - $1)) -gt 1 ] || [ $((now - $1)) -lt -1 ]; then
            echo "failed GPU $uuid is not held to $1 W: $said"
            return
        fi
    done
    echo "held $1"
}
echo armed
while read -r what watts; do
    case $what in
    hold) hold_all "$watts" </dev/null ;;
    free) sh /run/llamaherd/limits/back </dev/null && echo free ;;
    esac
done
kill $words 2>/dev/null
