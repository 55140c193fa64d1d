# Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
locks=/run/llamaherd/locks
# $1 file descriptor, $2 name; opens the lock, and does not wait for it.
open_lock() {
    (umask 022 && mkdir -p "${locks%/*}") && mkdir -m 0700 "$locks" 2>/dev/null
    if [ -L "$locks" ] || [ "$(stat -c '%F %u %a' "$locks")" != "directory $(id -u) 700" ]; then
        echo "$locks is no folder of root's alone, as locks need one (mode 0700): see who made it, remove it, and run again" >&2
        return 1
    fi
    (umask 077 && : >>"$locks/$2") && eval "exec $1<>\"\$locks/$2\""
}
# $3 seconds to wait, $4 what it is held for: told to whoever waits for us meanwhile.
hold() {
    open_lock "$1" "$2" || return 1
    if ! flock -n "$1"; then
        by=$(cat "$locks/$2")
        echo "waiting for another run, ${by:-which has just begun}, for up to $3 s"
        if ! flock -w "$3" "$1"; then
            by=$(cat "$locks/$2")
            echo "after $3 s another run, ${by:-which does not say what it is}, still holds $locks/$2; see with \`ps\` whether it works or hangs, wait or end it, and run again" >&2
            return 1
        fi
    fi
    echo "process $$ since $(date +%T): $4" >"$locks/$2"
}
# two runs at once would restart each other's servers
hold 8 host 3600 'starting llama-chat.service' || exit 1
# A user of a server's own, who owns nothing else and cannot log in.
account() {
    id -u "$1" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
}
# A run that held the lock before us may have gone on to a container, and have taken the unit's user with it.
account llama-chat || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server. Any file does for a key: this one needs no
# room on a disk.
key=/proc/version
said=$(timeout 20 setpriv --reuid llama-chat --regid llama-chat --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --parallel 1 --threads 1 --host 127.0.0.1 --port 8080 --metrics --api-key-file "$key" --version 2>&1)
rc=$?
case $rc in
124 | 126 | 127 | 137)
    printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance chat: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
    exit 1
    ;;
esac
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance chat: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
# nobody listens any more: whoever began it may be gone, and what is new may not serve.
trap : PIPE
exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-chat refused=/var/lib/llamaherd/refused/llama-chat
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-chat was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-chat beside_file=/run/systemd/system/llamaherd-beside-chat.service beside_asked='' beside_proved='' direct=''
[ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
# A server beside goes on where it is the only one that serves: for as long as its unit lets it.
at_exit() {
    if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of unit)" ]; then
            end_beside
        else
            echo "what was tried beside llama-chat answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
base64|{"url": "http://127.0.0.1:8080/v1/chat/completions", "metrics": "http://127.0.0.1:8080/metrics", "key": "/etc/llamaherd/keys/chat", "seconds": 120, "drafts": 0, "floor": 0, "body": {"model": "gemma", "messages": [{"role": "user", "content": "The three primary colours are"}], "temperature": 0, "max_tokens": 8}, "kind": "chat", "models": ["gemma"], "models_path": "/v1/models", "props_path": "/props", "health_path": "/health", "listen": "127.0.0.1", "closed": true, "context": 8192, "same": "2b4a102d7142", "spec": "ea3d36a7a072"}
base64|\ No newline at end of file
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-chat.service; else echo /etc/llamaherd/compose/chat/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" /etc/llamaherd/keys/chat
    printf 'was_inputs=%s\n' ''"'"'/etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5'"'"''
}
# $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
keep() (
    umask 077
    install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f /etc/llamaherd/keys/chat ] || cp -p /etc/llamaherd/keys/chat "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != ea3d36a7a072 ] || printf '%s\n' ea3d36a7a072 >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/last" || { rm -rf "$new"; exit 1; }
    for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
)
# The previous version stays until the new one has passed its probation.
keep_new() {
    replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep unit ea3d36a7a072 "$asked" || {
        replaced=''
        echo "llama-chat serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
    rm -f "$refused"
}
# From here on, the host itself probes the new version, and restores the previous one if it fails.
start_probation() {
    [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-chat 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-chat.json) <<'END' &&
base64|[{"service": "llama-chat", "kind": "unit", "spec": "ea3d36a7a072", "tried": "b5f3d0404fa7", "instance": "chat", "user": "llama-chat", "kept": "/var/lib/llamaherd/kept/llama-chat", "refused": "/var/lib/llamaherd/refused/llama-chat", "releases": "/var/lib/llamaherd/releases", "locks": "/run/llamaherd/locks", "lock_seconds": 3600, "seconds": 120, "prompts": true, "prove": "/opt/llamaherd/libexec/prove", "started": "/opt/llamaherd/libexec/started", "forget": "systemctl stop llamaherd-beside-chat.service 2>/dev/null\nsystemctl disable -q --now llama-chat.service\n# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.\n! id -u llama-chat >/dev/null 2>&1 || userdel llama-chat || exit 1\nrm -f /etc/systemd/system/llama-chat.service /run/llamaherd/started/llama-chat\nsystemctl daemon-reload\nsystemctl reset-failed llama-chat.service 2>/dev/null\n:\n"}]
base64|\ No newline at end of file
END
        systemd-run --quiet --collect --unit=llamaherd-probation-chat --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-chat.json ||
        echo "llama-chat serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
# What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
# a run may be killed, or its host, and systemd starts what is new at the next boot. Gone with the next that is kept.
untried() { grep -Fqsx "$1" "$kept/untried"; }
mark_untried() {
    # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-chat 2>/dev/null
    ! untried ea3d36a7a072 || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo ea3d36a7a072 >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-chat was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$kept/last/how" 2>/dev/null; }
spec_of() {
    if [ "$1" = unit ]; then
        systemctl -q is-active llama-chat.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-chat
    fi 2>/dev/null
}
# What an earlier version of ours started, or somebody since, is not kept yet. Its file is the one that it was started from
# if it says the same spec.
keep_what_serves() {
    serving=$(spec_of "$1")
    [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-chat in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-chat
    [ "$(was)" != ea3d36a7a072 ] || how=''
    case $1 in
    "$asked") ;;
    "$beside_asked") how=beside proves=$beside ;;
    *) how=back limit=$was_seconds ;;
    esac
    LEFT=$((began + limit - $(date +%s))) PROVED=$beside_proved PROGRESS=4 BESIDE=$beside_asked $direct /opt/llamaherd/libexec/prove "$1" "$kept/last/speeds" "$asked.speeds" "$how" \
        $(systemctl show -P MainPID "$proves.service") $(docker top "$proves" -eo pid 2>/dev/null | sed 1d)
}
# What was put back is as slow as what it was put back for: the host is, and it is nobody's fault.
host_is_slow() {
    [ -s "$asked.speeds.slow" ] && [ -s "$asked.speeds" ] && cp "$asked.speeds" "$kept/last/speeds.new" && mv -fT "$kept/last/speeds.new" "$kept/last/speeds" || return 1
    echo "what served before decodes no faster now: \`herd up\` tries what is declared again, and compares with that"
}
# What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
# it was started; $1 says how to ask another. Then new connections are refused where the host can do that, for seconds
# at most: `let_in` is to come after the server was stopped.
drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-chat/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-chat/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< templates/serve/drain.py: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>> main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), "led" in sys.argv[4:])
END
}
let_in() { nft delete table inet llamaherd-shut 2>/dev/null || :; }
# What a server beside answers ends before it does, while new connections go to the declared one again.
end_beside() {
    [ -e "$beside_file" ] || return 0
    nft flush table inet "$beside" 2>/dev/null
    [ -z "$direct" ] || [ -z "$beside_asked" ] || drain "$beside_asked"
    systemctl stop "$beside" 2>/dev/null
    # Its unit does so as well, but what a unit does at its end has no longer than its stop may take.
    nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/chat.yaml "/run/llamaherd/started/$beside"
    systemctl daemon-reload
    systemctl reset-failed "$beside" 2>/dev/null
    direct=''
}
put_back() { [ ! -f "$kept/last/$1" ] || { cp -p "$kept/last/$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
start_what_was() {
    if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-chat.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-chat.service 2>/dev/null
        systemctl start llama-chat.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-chat "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' b5f3d0404fa7 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# Ends the run, where there is anything to go back to. $1 is why: it has been said by then. What failed has been stopped.
take_back() {
    [ -f "$kept/last/how" ] || return 0
    . "$kept/last/how"
    if [ "$was_kind" != unit ]; then
        {
systemctl stop llamaherd-beside-chat.service 2>/dev/null
systemctl disable -q --now llama-chat.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-chat >/dev/null 2>&1 || userdel llama-chat || exit 1
rm -f /etc/systemd/system/llama-chat.service /run/llamaherd/started/llama-chat
systemctl daemon-reload
systemctl reset-failed llama-chat.service 2>/dev/null
:

        } >/dev/null 2>&1
    elif cmp -s "$kept/last/file" "$was_file" && { [ ! -f "$kept/last/key" ] || cmp -s "$kept/last/key" "$was_key"; }; then
        return 0
    fi
    echo "putting back what served as llama-chat before, spec $was_spec"
    began=$(date +%s)
    if put_back file "$was_file" && put_back key "$was_key" && {
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8080 >/dev/null 2>&1
        start_what_was
    } && { [ ! -f "$kept/last/asked" ] || why=$(proved "$kept/last/asked") || [ $? = 2 ]; }; then
        rm -f "$kept/untried"
        # Whoever changed no more than the key may try again.
        [ "$was_spec" = ea3d36a7a072 ] || host_is_slow || note_refused "$1"
        printf '%s\n' "llama-chat serves again as before, spec $was_spec, after $(($(date +%s) - began)) s: what is declared did not, since $1" >&2
        echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    else
        printf '%s\n' "llama-chat was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
        echo "  help: \`journalctl -u llama-chat\` says more; \`herd up\` tries what is declared again" >&2
    fi
    exit 1
}
keep_what_serves unit
mark_untried
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
put_file /etc/systemd/system/llama-chat.service /etc/systemd/system 0644 root <<'END'
base64|<<< systemd_cpu_with_key.service: # Written by llamaherd for instance `chat` of rig `box`: change the inventory, not this file.
base64|>>> WantedBy=multi-user.target
END
put_file /etc/llamaherd/keys/chat /etc/llamaherd/keys 0400 llama-chat <<'END'
base64|key
END

# With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
systemctl -q --no-reload enable llama-chat.service && systemctl daemon-reload || exit 1
# Who held the lock before us may have started what we want. What was seen to be wrong is not asked about again.
run=$(systemctl show -P InvocationID llama-chat.service)
if [ -z "$unproven" ] && [ "$run" != '' ] && systemctl -q is-active llama-chat.service &&
    tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | grep -Fqx LLAMAHERD_SPEC=ea3d36a7a072 &&
    /opt/llamaherd/libexec/started changed unit llama-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >/dev/null; then
    echo "llama-chat.service was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-chat.service: it has 300 s to load its model"
# Nothing comes between this and the stop: who asks meanwhile would be cut off.
drain
began=$(date +%s) stopped=$(date +%s%3N)
systemctl stop llama-chat.service 2>/dev/null
let_in
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8080 >/dev/null 2>&1
# Not before the old server is stopped: what is asked of it between its last request and that is cut off.
systemctl reset-failed llama-chat.service 2>/dev/null
if ! systemctl restart llama-chat.service 2>/dev/null; then
    journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-chat.service is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: journalctl -u llama-chat.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-chat.service
    take_back "llama-chat.service was not healthy after $(($(date +%s) - began)) s of 300"
    exit 1
fi
loaded=$(($(date +%s%3N) - stopped))
why=$(proved "$asked")
case $? in
0) ;;
1)
    journalctl -q -u llama-chat.service -n 5 --no-pager -o cat | cut -c -300 >&2
    printf '%s\n' "llama-chat.service is healthy, but $why" >&2
    systemctl stop llama-chat.service
    take_back "$why"
    exit 1
    ;;
*)
    printf '%s\n' "llama-chat.service answers, but $why" >&2
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || systemctl stop llama-chat.service
    take_back "$why"
    ;;
esac
keep_new
end_beside
start_probation
