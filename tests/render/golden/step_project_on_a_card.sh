<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> # two runs at once would restart each other's servers
hold 8 host 3600 'starting llama-boxed' || exit 1
<<< step_project.sh: systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
>>> key=/proc/version
said=$(timeout 20 setpriv --reuid 2043340793 --regid 2043340793 --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 127.0.0.1 --port 8004 --metrics --gpu-layers all --version 2>&1)
<<< step_unit.sh: rc=$?
>>>     printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance boxed: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
<<< step_unit.sh:     exit 1
>>>     printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance boxed: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

<<< step_project.sh: # While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
>>>     [ ! -s "$trial/said" ] || tail -n 5 "$trial/said" | cut -c -300 >&2
    printf '%s\n' "instance boxed: $1; the instance was left as it was" >&2
<<< step_project.sh:     rm -rf "$trial"
>>> base64 -d >"$trial/compose.yaml" <<'END' || exit 1
base64|<<< compose_cuda.yaml: # Written by llamaherd for instance `boxed` of rig `duo`: change the inventory, not this file.
base64|>>>           devices: [{driver: cdi, device_ids: ["nvidia.com/gpu=GPU-5090"], capabilities: [gpu]}]
END
docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
docker image inspect llamaherd/engine:llama.cpp-1e5a4c321023-545575 >/dev/null 2>&1 || {
    left 'its image llamaherd/engine:llama.cpp-1e5a4c321023-545575 is not there'
}
<<< step_project.sh: rm -rf "$trial"
>>> exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-boxed refused=/var/lib/llamaherd/refused/llama-boxed
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-boxed was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-boxed beside_file=/run/systemd/system/llamaherd-beside-boxed.service beside_asked='' beside_proved='' direct=''
<<< step_project.sh: [ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
>>>         else
            echo "what was tried beside llama-boxed answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
base64|{"url": "http://127.0.0.1:8004/v1/chat/completions", "metrics": "http://127.0.0.1:8004/metrics", "key": null, "seconds": 120, "drafts": 0, "floor": 0, "body": {"model": "gemma", "messages": [{"role": "user", "content": "The three primary colours are"}], "temperature": 0, "max_tokens": 8}, "kind": "chat", "models": ["gemma"], "models_path": "/v1/models", "props_path": "/props", "health_path": "/health", "listen": "127.0.0.1", "closed": true, "context": 4096, "same": "175f54e3bb95", "spec": "f662f55e648d"}
base64|\ No newline at end of file
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-boxed.service; else echo /etc/llamaherd/compose/boxed/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" ''"'"''"'"''
    printf 'was_inputs=%s\n' ''"'"'- /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5'"'"''
}
<<< step_unit_on_cards.sh: # $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
>>>         { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != f662f55e648d ] || printf '%s\n' f662f55e648d >"$new/holds"; } &&
<<< step_unit.sh:         { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
>>>     replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = f662f55e648d ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep container f662f55e648d "$asked" || {
        replaced=''
        echo "llama-boxed serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
<<< step_unit.sh:     rm -f "$refused"
>>>     [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-boxed 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-boxed.json) <<'END' &&
base64|[{"service": "llama-boxed", "kind": "container", "spec": "f662f55e648d", "tried": "255ecc181516", "instance": "boxed", "user": "llama-boxed", "kept": "/var/lib/llamaherd/kept/llama-boxed", "refused": "/var/lib/llamaherd/refused/llama-boxed", "releases": "/var/lib/llamaherd/releases", "locks": "/run/llamaherd/locks", "lock_seconds": 3600, "seconds": 120, "prompts": true, "prove": "/opt/llamaherd/libexec/prove", "started": "/opt/llamaherd/libexec/started", "forget": "systemctl stop llamaherd-beside-boxed.service 2>/dev/null\ndocker stop llama-boxed >/dev/null 2>&1\ndocker rm -f llama-boxed >/dev/null 2>&1\ndocker network rm llama-boxed_default >/dev/null 2>&1\nrm -rf /etc/llamaherd/compose/boxed /var/lib/llamaherd/started/llama-boxed\n:\n"}]
base64|\ No newline at end of file
END
        systemd-run --quiet --collect --unit=llamaherd-probation-boxed --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-boxed.json ||
        echo "llama-boxed serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
<<< step_unit.sh: # What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
>>>     # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-boxed 2>/dev/null
    ! untried f662f55e648d || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo f662f55e648d >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-boxed was left as it is; \`df -h $kept\` says whether there is room" >&2
<<< step_unit.sh:         exit 1
>>>     if [ "$1" = unit ]; then
        systemctl -q is-active llama-boxed.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-boxed.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-boxed
<<< step_unit.sh:     fi 2>/dev/null
>>>     [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-boxed in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-boxed
    [ "$(was)" != f662f55e648d ] || how=''
<<< step_unit.sh:     case $1 in
>>> drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-boxed/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-boxed/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< step_unit.sh: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>>     nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/boxed.yaml "/run/llamaherd/started/$beside"
<<< step_unit.sh:     systemctl daemon-reload
>>>     if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-boxed.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-boxed.service 2>/dev/null
        systemctl start llama-boxed.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-boxed "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 255ecc181516 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
<<< step_project.sh: # Ends the run, where there is anything to go back to. $1 is why: it has been said by then. What failed has been stopped.
>>>     if [ "$was_kind" != container ]; then
systemctl stop llamaherd-beside-boxed.service 2>/dev/null
docker stop llama-boxed >/dev/null 2>&1
docker rm -f llama-boxed >/dev/null 2>&1
docker network rm llama-boxed_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/boxed /var/lib/llamaherd/started/llama-boxed
:

<<< step_unit.sh:         } >/dev/null 2>&1
>>>         return 0
    echo "putting back what served as llama-boxed before, spec $was_spec"
<<< step_unit.sh:     began=$(date +%s)
>>> # engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8004 >/dev/null 2>&1
<<< step_unit.sh:         start_what_was
>>>         # Whoever changed no more than the key may try again.
        [ "$was_spec" = f662f55e648d ] || host_is_slow || note_refused "$1"
        printf '%s\n' "llama-boxed serves again as before, spec $was_spec, after $(($(date +%s) - began)) s: what is declared did not, since $1" >&2
        echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    else
        printf '%s\n' "llama-boxed was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
        echo "  help: \`docker logs llama-boxed\` says more; \`herd up\` tries what is declared again" >&2
    fi
    exit 1
}
<<< step_project.sh: keep_what_serves container
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/compose/boxed/compose.yaml /etc/llamaherd/compose/boxed 0644 root <<'END'
base64|<<< compose_cuda.yaml: # Written by llamaherd for instance `boxed` of rig `duo`: change the inventory, not this file.
base64|>>>           devices: [{driver: cdi, device_ids: ["nvidia.com/gpu=GPU-5090"], capabilities: [gpu]}]
END

# Who held the lock before us may have made what we want. What was seen to be wrong with a container is not asked about
# again; one that was only not recorded yet may be by now.
now=$(docker inspect --type container --format '{{.Id}} {{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{index .Config.Labels "llamaherd.spec"}}' llama-boxed 2>/dev/null)
if [ -z "$unproven" ] && [ "${now%% *}" != '' ] && [ "${now#* }" = 'running healthy f662f55e648d' ] &&
    /opt/llamaherd/libexec/started changed container llama-boxed - /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >/dev/null; then
    echo "llama-boxed was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-boxed in its container: it has 300 s to load its model"
drain
began=$(date +%s) stopped=$(date +%s%3N)
docker stop llama-boxed >/dev/null 2>&1
let_in
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8004 >/dev/null 2>&1
if ! docker compose --progress plain -f /etc/llamaherd/compose/boxed/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-boxed 2>&1 | cut -c -300 >&2
    echo "llama-boxed is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-boxed" >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    take_back "llama-boxed was not healthy after $(($(date +%s) - began)) s of 300"
    exit 1
fi
loaded=$(($(date +%s%3N) - stopped))
# Healthy is not enough: without CUDA it serves from the CPU, and is as healthy.
if ! /opt/llamaherd/libexec/gpu-check every 'docker logs llama-boxed 2>&1' \
    "$(docker inspect --type container --format '{{.State.Pid}}' llama-boxed) $(docker top llama-boxed -eo pid 2>/dev/null | sed 1d)" GPU-5090; then
    docker logs llama-boxed 2>&1 | grep -i cuda | head -n 3 | cut -c -300 >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    take_back 'it was healthy, and not on its GPUs'
    exit 1
fi
<<< step_unit.sh: why=$(proved "$asked")
>>> 1)
    docker logs --tail 5 llama-boxed 2>&1 | cut -c -300 >&2
    printf '%s\n' "llama-boxed is healthy, but $why" >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
<<< step_unit.sh:     take_back "$why"
>>>     exit 1
    printf '%s\n' "llama-boxed answers, but $why" >&2
    take_back "$why"
    ;;
esac
/opt/llamaherd/libexec/started record container llama-boxed - /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
# The network that it had before, if it is on the host's own now: one in use is not removed.
docker network rm llama-boxed_default >/dev/null 2>&1 || :
keep_new
end_beside
start_probation
