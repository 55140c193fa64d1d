# Starts the arms of a comparison one at a time, as it is told on the same pipe. What serves is stopped meanwhile, and
# comes back whatever ends this: the kernel opens this script's lock with its process, which ends the guard, a unit of
# systemd, and what systemd does after that brings it back. A boot starts it by itself.
trap : PIPE
<<< bench_alone.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'measuring llama-chat' || exit 1
# A guard of before has what it waits for by now.
systemctl stop llamaherd-arms.service 2>/dev/null
open_lock 7 measure || exit 1
if ! flock -w 5 7; then
<<< bench_alone.sh:     by=$(cat "$locks/measure")
>>> printf '%s since %s\n' 'tom on desk' "$(date +'%F %T')" >"$locks/measure"
<<< step_room.sh: # What lacks of GPUs, or of RAM, once processes of a server have ended.
>>> sys.exit(bool(lacking))
served=''
case $(systemctl show -P ActiveState llama-chat.service) in active | activating | reloading) served="$served llama-chat.service" ;; esac
(umask 077 && rm -rf /run/llamaherd/arms && mkdir -p /run/llamaherd/arms) && printf '%s' "$served" >/run/llamaherd/arms/served && cat >/run/llamaherd/arms/back <<'END' || exit 1
# What is measured ends, and what served before serves again: whoever began it may be gone.
systemctl stop llamaherd-arm-a-chat.service llamaherd-arm-b-chat.service 2>/dev/null
rm -f /run/systemd/system/llamaherd-arm-a-chat.service /run/systemd/system/llamaherd-arm-b-chat.service /run/llamaherd/started/llamaherd-arm-a-chat /run/llamaherd/started/llamaherd-arm-b-chat
systemctl daemon-reload
systemctl reset-failed llamaherd-arm-a-chat.service llamaherd-arm-b-chat.service 2>/dev/null
if [ -s /run/llamaherd/arms/served ]; then
    # Few starts within minutes are allowed, and none of those was its own.
    xargs systemctl reset-failed </run/llamaherd/arms/served 2>/dev/null
    xargs systemctl start --no-block </run/llamaherd/arms/served
fi
rm -rf /run/llamaherd/arms

END
systemd-run -q --collect --unit=llamaherd-arms.service --description='Brings back what served before a comparison' -p Type=exec -p RuntimeMaxSec=2100 -p TimeoutStopSec=61 -p 'ExecStopPost=/bin/sh /run/llamaherd/arms/back' flock "$locks/measure" true 7>&- 8>&- || exit 1
# It is awaited: what served is then back, or systemd says why not.
at_exit() { systemctl stop llamaherd-arms.service 2>/dev/null; }
trap at_exit EXIT
trap 'exit 1' HUP INT TERM
(
# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
# $1 the path, $2 what the system says; the way out is by the reason.
cannot_write() {
    echo "cannot write $1: ${2##*: }" >&2
    near=$1
    until [ -d "$near" ]; do near=${near%/*} && near=${near:-/}; done
    on=$(df -P "$near" | awk 'NR == 2 {print $6}')
    case $2 in
    *'No space'*) echo "  help: make room on $on (\`df -h $on\`; \`df -i $on\` where it has room, but no more files), then run again" >&2 ;;
    *Read-only*) echo "  help: make $on writable (\`findmnt $on\` says how it is mounted; a disk with errors is mounted so, see \`dmesg\`), then run again" >&2 ;;
    *'not permitted'*) echo "  help: \`lsattr -d $near $1\` says whether it may not be changed (\`chattr -i\`), then run again" >&2 ;;
    *) echo "  help: see what is at $near with \`ls -la\`, then run again" >&2 ;;
    esac
    rm -f "$1.llamaherd-new" 2>/dev/null
    exit 1
}
# $1 path, $2 folder, $3 mode, $4 owner; its content comes on stdin.
put_file() {
    why=$({
        { [ -d "$2" ] || (umask 022 && mkdir -p "$2"); } &&
            base64 -d >"$1.llamaherd-new" &&
            chown "$4" "$1.llamaherd-new" &&
            chmod "$3" "$1.llamaherd-new" &&
            mv -fT "$1.llamaherd-new" "$1"
    } 2>&1) || cannot_write "$1" "$why"
}
put_file /run/systemd/system/llamaherd-arm-a-chat.service /run/systemd/system 0644 root <<'END'
base64|<<< systemd_cpu.service: # Written by llamaherd for instance `chat` of rig `box`: change the inventory, not this file.
base64|>>> # What it starts with, for whoever wants to know later what has changed since.
base64|ExecStartPre=-+/opt/llamaherd/libexec/started record unit llamaherd-arm-a-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
base64|<<< arm.service: ExecStart=/opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --parallel 1 --threads 1 --host 127.0.0.1 --port 8080 --metrics --api-key-file /etc/llamaherd/keys/chat
base64|>>> RuntimeMaxSec=2100
END
put_file /run/systemd/system/llamaherd-arm-b-chat.service /run/systemd/system 0644 root <<'END'
base64|<<< arm.service: # Written by llamaherd for instance `chat` of rig `box`: change the inventory, not this file.
base64|>>> RuntimeMaxSec=2100
END

) && systemctl daemon-reload || exit 1
# A word now and then: the connection to somebody whose line was cut is given up then.
while sleep 15; do
    kill -0 $$ 2>/dev/null || exit
    echo
done 7>&- 8>&- &
words=$!
# Nobody else measures or changes anything here from now on: gateways can be told that it is about to be stopped.
echo mine
read -r go && [ "$go" = go ] || exit 1
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/nonexistent/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/nonexistent/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< templates/serve/drain.py: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>> main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), "led" in sys.argv[4:])
END
}
let_in() { nft delete table inet llamaherd-shut 2>/dev/null || :; }
drain /var/lib/llamaherd/kept/llama-chat/last/asked
systemctl stop llama-chat.service
let_in
start() {
    began=$(date +%s%3N)
    if systemctl start "$2" 2>/dev/null; then
        echo "ready $1 $(($(date +%s%3N) - began)) $(systemctl show -P InvocationID "$2")"
    else
        [ "$(systemctl show -P Result "$2")" = oom-kill ] && why='the system ended it for want of RAM; ' || why=''
        echo "failed $1 $why$(journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$2")" -n 3 --no-pager -o cat | tr -s '\n\t' '  ' | cut -c -300)"
    fi
}
echo armed
while read -r what arm; do
    case $what-$arm in
    # In braces: a shell keeps what it closes for a function of its own, and with that the locks.
    start-A) { start A llamaherd-arm-a-chat.service; } </dev/null 7>&- 8>&- & ;;
    start-B) { start B llamaherd-arm-b-chat.service; } </dev/null 7>&- 8>&- & ;;
    stop-)
        systemctl stop llamaherd-arm-a-chat.service llamaherd-arm-b-chat.service 2>/dev/null
        systemctl reset-failed llamaherd-arm-a-chat.service llamaherd-arm-b-chat.service 2>/dev/null
        echo stopped
        ;;
    esac
done
at_exit
trap - EXIT
began=$(date +%s%3N)
if [ -z "$served" ] || systemctl start $served 2>/dev/null; then
    echo "back $(($(date +%s%3N) - began))"
else
    echo "away$served"
fi
kill $words 2>/dev/null
