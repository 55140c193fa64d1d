<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> # two runs at once would restart each other's servers
hold 8 host 3600 'starting llama-reasoner.service' || exit 1
<<< step_unit.sh: # A user of a server's own, who owns nothing else and cannot log in.
>>> # A run that held the lock before us may have gone on to a container, and have taken the unit's user with it.
account llama-reasoner || exit 1
<<< step_unit.sh: # The engine itself says whether it understands these arguments: it reads them all before --version ends it.
>>> key=/proc/version
said=$(timeout 20 setpriv --reuid llama-reasoner --regid llama-reasoner --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf --alias 35b --ctx-size 262144 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 127.0.0.1 --port 8001 --metrics --gpu-layers all --spec-type draft-mtp --spec-draft-n-max 3 --version 2>&1)
<<< step_unit.sh: rc=$?
>>>     printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance reasoner: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --version did not end by itself within 20 s, or could not be run (exit code $rc), so its arguments are not checked; the instance was left as it was" >&2
<<< step_unit.sh:     exit 1
>>>     printf '%s\n' "$said" | grep -qi error || printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "instance reasoner: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

<<< step_unit.sh: # A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
>>> exec 4>&1  # progress, while stdout is read for a reason
kept=/var/lib/llamaherd/kept/llama-reasoner refused=/var/lib/llamaherd/refused/llama-reasoner
[ -x /opt/llamaherd/libexec/prove ] || {
    echo "/opt/llamaherd/libexec/prove, which proves servers, is not on this host, so llama-reasoner was left as it is" >&2
    echo "  help: \`herd up\` installs it" >&2
    exit 1
}
beside=llamaherd-beside-reasoner beside_file=/run/systemd/system/llamaherd-beside-reasoner.service beside_asked='' beside_proved='' direct=''
<<< step_unit.sh: [ ! -e "$beside_file" ] || direct='setpriv --regid 2009999999 --clear-groups'
>>>         else
            echo "what was tried beside llama-reasoner answers in its place, until \`herd up\` has it serve again, or for as long as \`systemctl status $beside\` says" >&2
        fi
    fi
    rm -f "$asked" "$asked".* "$beside_asked"
}
asked=$(mktemp) && trap at_exit EXIT && base64 -d >"$asked" <<'END' || exit 1
base64|{"url": "http://127.0.0.1:8001/v1/chat/completions", "metrics": "http://127.0.0.1:8001/metrics", "key": null, "seconds": 120, "drafts": 16, "floor": 0, "body": {"model": "35b", "messages": [{"role": "user", "content": "The three primary colours are"}], "temperature": 0, "max_tokens": 64}, "kind": "chat", "models": ["35b"], "models_path": "/v1/models", "props_path": "/props", "health_path": "/health", "listen": "127.0.0.1", "closed": true, "context": 262144, "same": "e3783a6bd3eb", "spec": "9413e80713cb"}
base64|\ No newline at end of file
END
file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-reasoner.service; else echo /etc/llamaherd/compose/reasoner/compose.yaml; fi; }
how_kept() {
    printf 'was_kind=%s was_spec=%s was_seconds=%s was_file=%s was_key=%s\n' "$1" "$2" 360 "$(file_of "$1")" ''"'"''"'"''
    printf 'was_inputs=%s\n' ''"'"'- /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc'"'"''
}
<<< step_unit.sh: # $1 unit or container, $2 the spec that serves, $3 how to ask it, if that is known. All at once, by one link.
>>>     install -d -m 0700 "${kept%/*}" "$kept" && new=$(mktemp -d "$kept/XXXXXXXX") || exit 1
    cp -p "$(file_of "$1")" "$new/file" && { [ ! -f '' ] || cp -p '' "$new/key"; } &&
        { [ -z "${3:-}" ] || cp "$3" "$new/asked"; } &&
        { speeds=$asked.speeds && [ -s "$speeds" ] || speeds=$kept/last/speeds; [ ! -s "$speeds" ] || cp "$speeds" "$new/speeds"; } &&
        { [ "$2" != 9413e80713cb ] || printf '%s\n' 9413e80713cb >"$new/holds"; } &&
        { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
<<< step_unit.sh:         ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/last" || { rm -rf "$new"; exit 1; }
>>>     replaced=''
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 9413e80713cb ] || { ln -sfn "$(readlink "$kept/last")" "$kept/before" && replaced=yes; }
    keep unit 9413e80713cb "$asked" || {
        replaced=''
        echo "llama-reasoner serves, and cannot be kept in $kept: a later change that fails cannot come back to it"
    }
<<< step_unit.sh:     rm -f "$refused"
>>>     [ "$replaced" ] || return 0
    systemctl stop llamaherd-probation-reasoner 2>/dev/null
    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-reasoner.json) <<'END' &&
base64|[{"service": "llama-reasoner", "kind": "unit", "spec": "9413e80713cb", "tried": "8fe5298b283e", "instance": "reasoner", "user": "llama-reasoner", "kept": "/var/lib/llamaherd/kept/llama-reasoner", "refused": "/var/lib/llamaherd/refused/llama-reasoner", "releases": "/var/lib/llamaherd/releases", "locks": "/run/llamaherd/locks", "lock_seconds": 3600, "seconds": 120, "prompts": true, "prove": "/opt/llamaherd/libexec/prove", "started": "/opt/llamaherd/libexec/started", "forget": "systemctl stop llamaherd-beside-reasoner.service 2>/dev/null\nsystemctl disable -q --now llama-reasoner.service\n# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.\n! id -u llama-reasoner >/dev/null 2>&1 || userdel llama-reasoner || exit 1\nrm -f /etc/systemd/system/llama-reasoner.service /run/llamaherd/started/llama-reasoner\nsystemctl daemon-reload\nsystemctl reset-failed llama-reasoner.service 2>/dev/null\n:\n"}]
base64|\ No newline at end of file
END
        systemd-run --quiet --collect --unit=llamaherd-probation-reasoner --property=RuntimeMaxSec=7920 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-reasoner.json ||
        echo "llama-reasoner serves, but its probation did not start: the host does not roll it back if it fails within a minute" >&2
}
<<< step_unit.sh: # What was started and has not answered a prompt yet, a spec each line: it stands there before anything is changed, since
>>>     # A probation would mistake what is stopped and tried from here on for the server that it watches.
    systemctl stop llamaherd-probation-reasoner 2>/dev/null
    ! untried 9413e80713cb || { unproven=yes; return; }
    unproven=''
    (umask 077 && install -d -m 0700 "${kept%/*}" "$kept" && echo 9413e80713cb >>"$kept/untried" && sync "$kept/untried") || {
        echo "cannot write $kept/untried, so llama-reasoner was left as it is; \`df -h $kept\` says whether there is room" >&2
<<< step_unit.sh:         exit 1
>>>     if [ "$1" = unit ]; then
        systemctl -q is-active llama-reasoner.service && sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID llama-reasoner.service)/environ" | tr -d '\0'
    else
        docker inspect --type container --format '{{if eq .State.Status "running"}}{{with .State.Health}}{{if eq .Status "healthy"}}{{index $.Config.Labels "llamaherd.spec"}}{{end}}{{end}}{{end}}' llama-reasoner
<<< step_unit.sh:     fi 2>/dev/null
>>>     [ -z "$serving" ] || [ "$serving" = "$(was)" ] || { [ -f "$kept/last/how" ] && untried "$serving"; } || ! grep -Fqs "$serving" "$(file_of "$1")" || keep "$1" "$serving" || {
        echo "cannot keep what serves as llama-reasoner in $kept, so it was left as it is; \`df -h $kept\` says whether there is room" >&2
        exit 1
    }
}
# $1 how to ask it. What was declared before, or by another key alone, is not judged by its speed.
proved() {
    how=judge limit=360 proves=llama-reasoner
    [ "$(was)" != 9413e80713cb ] || how=''
<<< step_unit.sh:     case $1 in
>>> drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-reasoner/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-reasoner/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< step_unit.sh: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>>     nft delete table inet "$beside" 2>/dev/null
    rm -f "$beside_file" /run/llamaherd/beside/reasoner.yaml "/run/llamaherd/started/$beside"
<<< step_unit.sh:     systemctl daemon-reload
>>>     if [ "$was_kind" = unit ]; then
        systemctl -q --no-reload enable llama-reasoner.service && systemctl daemon-reload || return 1
        systemctl reset-failed llama-reasoner.service 2>/dev/null
        systemctl start llama-reasoner.service 2>/dev/null
    else
        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
        eval "set -- $was_inputs"
        /opt/llamaherd/libexec/started record container llama-reasoner "$@"
    fi
}
note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 8fe5298b283e "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
<<< step_unit.sh: # Ends the run, where there is anything to go back to. $1 is why: it has been said by then. What failed has been stopped.
>>>     if [ "$was_kind" != unit ]; then
systemctl stop llamaherd-beside-reasoner.service 2>/dev/null
systemctl disable -q --now llama-reasoner.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-reasoner >/dev/null 2>&1 || userdel llama-reasoner || exit 1
rm -f /etc/systemd/system/llama-reasoner.service /run/llamaherd/started/llama-reasoner
systemctl daemon-reload
systemctl reset-failed llama-reasoner.service 2>/dev/null
:

<<< step_unit.sh:         } >/dev/null 2>&1
>>>         return 0
    echo "putting back what served as llama-reasoner before, spec $was_spec"
<<< step_unit.sh:     began=$(date +%s)
>>> # engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8001 >/dev/null 2>&1
<<< step_unit.sh:         start_what_was
>>>         # Whoever changed no more than the key may try again.
        [ "$was_spec" = 9413e80713cb ] || host_is_slow || note_refused "$1"
        printf '%s\n' "llama-reasoner serves again as before, spec $was_spec, after $(($(date +%s) - began)) s: what is declared did not, since $1" >&2
        echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    else
        printf '%s\n' "llama-reasoner was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
        echo "  help: \`journalctl -u llama-reasoner\` says more; \`herd up\` tries what is declared again" >&2
    fi
    exit 1
}
<<< step_unit.sh: keep_what_serves unit
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/systemd/system/llama-reasoner.service /etc/systemd/system 0644 root <<'END'
base64|<<< systemd_cuda_two_cards.service: # Written by llamaherd for instance `reasoner` of rig `duo`: change the inventory, not this file.
base64|>>> WantedBy=multi-user.target
END

# With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
systemctl -q --no-reload enable llama-reasoner.service && systemctl daemon-reload || exit 1
# Who held the lock before us may have started what we want. What was seen to be wrong is not asked about again.
run=$(systemctl show -P InvocationID llama-reasoner.service)
if [ -z "$unproven" ] && [ "$run" != '' ] && systemctl -q is-active llama-reasoner.service &&
    tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-reasoner.service)/environ" | grep -Fqx LLAMAHERD_SPEC=9413e80713cb &&
    /opt/llamaherd/libexec/started changed unit llama-reasoner - /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc >/dev/null; then
    echo "llama-reasoner.service was started by another run meanwhile, as planned"
    rm -f "$kept/untried"
    exit 0
fi
echo "starting llama-reasoner.service: it has 360 s to load its model"
# Nothing comes between this and the stop: who asks meanwhile would be cut off.
drain
began=$(date +%s) stopped=$(date +%s%3N)
systemctl stop llama-reasoner.service 2>/dev/null
let_in
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8001 >/dev/null 2>&1
# Not before the old server is stopped: what is asked of it between its last request and that is cut off.
systemctl reset-failed llama-reasoner.service 2>/dev/null
if ! systemctl restart llama-reasoner.service 2>/dev/null; then
    # Said first, and long gone from the last lines.
    journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID llama-reasoner.service)" --no-pager -o cat | grep -i cuda | head -n 3 | cut -c -300 >&2
    journalctl -q -u llama-reasoner.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-reasoner.service is not healthy after $(($(date +%s) - began)) s of 360; its last lines are above, all of them in: journalctl -u llama-reasoner.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-reasoner.service
    take_back "llama-reasoner.service was not healthy after $(($(date +%s) - began)) s of 360"
    exit 1
fi
<<< step_unit.sh: loaded=$(($(date +%s%3N) - stopped))
>>> 1)
    journalctl -q -u llama-reasoner.service -n 5 --no-pager -o cat | cut -c -300 >&2
    printf '%s\n' "llama-reasoner.service is healthy, but $why" >&2
    systemctl stop llama-reasoner.service
<<< step_unit.sh:     take_back "$why"
>>>     exit 1
    printf '%s\n' "llama-reasoner.service answers, but $why" >&2
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 9413e80713cb ] || systemctl stop llama-reasoner.service
    take_back "$why"
    ;;
esac
keep_new
end_beside
start_probation
