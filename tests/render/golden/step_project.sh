<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> # two runs at once would restart each other's servers
hold 8 host 3600 'starting llama-drafter' || exit 1
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
<<< step_unit.sh: # The engine itself says whether it understands these arguments: it reads them all before --version ends it.
>>> key=/proc/version
said=$(timeout 20 setpriv --reuid 2093696176 --regid 2093696176 --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/0404040404040404/moe.gguf --alias moe --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 1 --host 127.0.0.1 --port 8081 --metrics --spec-type draft-mtp --spec-draft-n-max 2 --version 2>&1)
<<< step_unit.sh: rc=$?
>>>     printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance drafter: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
<<< step_unit.sh:     exit 1
>>>     printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance drafter: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
trial=$(mktemp -d) || exit 1
left() {
    [ ! -s "$trial/said" ] || tail -n 5 "$trial/said" | cut -c -300 >&2
    printf '%s\n' "instance drafter: $1; the instance was left as it was" >&2
    rm -rf "$trial"
    exit 1
}
base64 -d >"$trial/compose.yaml" <<'END' || exit 1
base64|<<< compose_cpu_mtp.yaml: # Written by llamaherd for instance `drafter` of rig `box`: change the inventory, not this file.
base64|>>>     logging: {driver: json-file, options: {max-size: 10m, max-file: "3"}}
END
docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
docker image inspect llamaherd/engine:llama.cpp-254c2e111fca-a371b6 >/dev/null 2>&1 || {
    left 'its image llamaherd/engine:llama.cpp-254c2e111fca-a371b6 is not there'
}
rm -rf "$trial"

<<< step_unit.sh: # A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
>>> exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-drafter refused=/var/lib/llamaherd/refused/llama-drafter
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-drafter was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-drafter beside_file=/run/systemd/system/llamaherd-beside-drafter.service beside_asked='' beside_proved='' direct=''
<<< step_unit.sh: [ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
>>>     if [ -e "$beside_file" ]; then
        if [ -n "$(spec_of container)" ]; then
            end_beside
        else
            echo "what was tried beside llama-drafter answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
base64|{"url": "http://127.0.0.1:8081/v1/chat/completions", "metrics": "http://127.0.0.1:8081/metrics", "key": null, "seconds": 120, "drafts": 16, "floor": 0, "body": {"model": "moe", "messages": [{"role": "user", "content": "The three primary colours are"}], "temperature": 0, "max_tokens": 64}, "kind": "chat", "models": ["moe"], "models_path": "/v1/models", "props_path": "/props", "health_path": "/health", "listen": "127.0.0.1", "closed": true, "context": 4096, "same": "5dc2a7189569", "spec": "6b3e9ef709bc"}
base64|\ No newline at end of file
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-drafter.service; else echo /etc/llamaherd/compose/drafter/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 300 "$(file_of "$1")" ''"'"''"'"''
    printf 'was_inputs=%s\n' ''"'"'- /var/lib/llamaherd/models/local/0404040404040404'"'"''
}
<<< step_unit_on_cards.sh: # $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
>>>         { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != 6b3e9ef709bc ] || printf '%s\n' 6b3e9ef709bc >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/0404040404040404 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
<<< step_unit.sh:         ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/last" || { rm -rf "$new"; exit 1; }
>>>     replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep container 6b3e9ef709bc "$asked" || {
        replaced=''
        echo "llama-drafter serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
<<< step_unit.sh:     rm -f "$refused"
>>>     [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-drafter 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-drafter.json) <<'END' &&
base64|[{"service": "llama-drafter", "kind": "container", "spec": "6b3e9ef709bc", "tried": "56d67c9ce668", "instance": "drafter", "user": "llama-drafter", "kept": "/var/lib/llamaherd/kept/llama-drafter", "refused": "/var/lib/llamaherd/refused/llama-drafter", "releases": "/var/lib/llamaherd/releases", "locks": "/run/llamaherd/locks", "lock_seconds": 3600, "seconds": 120, "prompts": true, "prove": "/opt/llamaherd/libexec/prove", "started": "/opt/llamaherd/libexec/started", "forget": "systemctl stop llamaherd-beside-drafter.service 2>/dev/null\ndocker stop llama-drafter >/dev/null 2>&1\ndocker rm -f llama-drafter >/dev/null 2>&1\ndocker network rm llama-drafter_default >/dev/null 2>&1\nrm -rf /etc/llamaherd/compose/drafter /var/lib/llamaherd/started/llama-drafter\n:\n"}]
base64|\ No newline at end of file
END
        systemd-run --quiet --collect --unit=llamaherd-probation-drafter --property=RuntimeMaxSec=7800 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-drafter.json ||
        echo "llama-drafter serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
<<< step_unit.sh: # What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
>>>     # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-drafter 2>/dev/null
    ! untried 6b3e9ef709bc || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo 6b3e9ef709bc >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-drafter was left as it is; \`df -h $kept\` says whether there is room" >&2
<<< step_unit.sh:         exit 1
>>>     if [ "$1" = unit ]; then
        systemctl -q is-active llama-drafter.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-drafter.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-drafter
<<< step_unit.sh:     fi 2>/dev/null
>>>     [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-drafter in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=300 proves=llama-drafter
    [ "$(was)" != 6b3e9ef709bc ] || how=''
<<< step_unit.sh:     case $1 in
>>> drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-drafter/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-drafter/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< step_unit.sh: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>>     nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/drafter.yaml "/run/llamaherd/started/$beside"
<<< step_unit.sh:     systemctl daemon-reload
>>>     if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-drafter.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-drafter.service 2>/dev/null
        systemctl start llama-drafter.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-drafter "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 56d67c9ce668 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
<<< step_unit.sh: # Ends the run, where there is anything to go back to. $1 is why: it has been said by then. What failed has been stopped.
>>>     . "$kept/last/how"
    if [ "$was_kind" != container ]; then
        {
systemctl stop llamaherd-beside-drafter.service 2>/dev/null
docker stop llama-drafter >/dev/null 2>&1
docker rm -f llama-drafter >/dev/null 2>&1
docker network rm llama-drafter_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/drafter /var/lib/llamaherd/started/llama-drafter
:

<<< step_unit.sh:         } >/dev/null 2>&1
>>>         return 0
    echo "putting back what served as llama-drafter before, spec $was_spec"
<<< step_unit.sh:     began=$(date +%s)
>>> # engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
<<< step_unit.sh:         start_what_was
>>>         # Whoever changed no more than the key may try again.
        [ "$was_spec" = 6b3e9ef709bc ] || host_is_slow || note_refused "$1"
        printf '%s\n' "llama-drafter serves again as before, spec $was_spec, after $(($(date +%s) - began)) s: what is declared did not, since $1" >&2
        echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    else
        printf '%s\n' "llama-drafter was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
        echo "  help: \`docker logs llama-drafter\` says more; \`herd up\` tries what is declared again" >&2
    fi
    exit 1
}
keep_what_serves container
<<< step_unit.sh: mark_untried
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/compose/drafter/compose.yaml /etc/llamaherd/compose/drafter 0644 root <<'END'
base64|<<< compose_cpu_mtp.yaml: # Written by llamaherd for instance `drafter` of rig `box`: change the inventory, not this file.
base64|>>>     logging: {driver: json-file, options: {max-size: 10m, max-file: "3"}}
END

# Who held the lock before us may have made what we want. What was seen to be wrong with a container is not asked about
# again; one that was only not recorded yet may be by now.
now=$(docker inspect --type container --format '{{.Id}} {{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{index .Config.Labels "llamaherd.spec"}}' llama-drafter 2>/dev/null)
if [ -z "$unproven" ] && [ "${now%% *}" != '' ] && [ "${now#* }" = 'running healthy 6b3e9ef709bc' ] &&
    /opt/llamaherd/libexec/started changed container llama-drafter - /var/lib/llamaherd/models/local/0404040404040404 >/dev/null; then
    echo "llama-drafter was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-drafter in its container: it has 300 s to load its model"
drain
began=$(date +%s) stopped=$(date +%s%3N)
docker stop llama-drafter >/dev/null 2>&1
let_in
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
if ! docker compose --progress plain -f /etc/llamaherd/compose/drafter/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-drafter 2>&1 | cut -c -300 >&2
    echo "llama-drafter is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-drafter" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    take_back "llama-drafter was not healthy after $(($(date +%s) - began)) s of 300"
    exit 1
fi
<<< step_unit.sh: loaded=$(($(date +%s%3N) - stopped))
>>> 1)
    docker logs --tail 5 llama-drafter 2>&1 | cut -c -300 >&2
    printf '%s\n' "llama-drafter is healthy, but $why" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
<<< step_unit.sh:     take_back "$why"
>>>     exit 1
    printf '%s\n' "llama-drafter answers, but $why" >&2
    take_back "$why"
    ;;
esac
/opt/llamaherd/libexec/started record container llama-drafter - /var/lib/llamaherd/models/local/0404040404040404
# The network that it had before, if it is on the host's own now: one in use is not removed.
docker network rm llama-drafter_default >/dev/null 2>&1 || :
keep_new
end_beside
start_probation
