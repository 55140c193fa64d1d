# Servers that exchange something change together: all of them, or none. How to end that is written down on the host before
# the first one is stopped: whatever ends this script, the next run does the rest.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'changing llama-chat, llama-drafter' || exit 1
# It goes on when nobody listens any more.
trap : PIPE
exchange=/var/lib/llamaherd/kept/.exchange
if [ -s "$exchange/back" ]; then
    echo 'another run was cut off while it changed llama-chat, llama-drafter, or others, so they were left as they are' >&2
    echo "  help: run \`herd up\` again, which ends that first" >&2
    exit 1
fi
check_1() (
<<< step_unit.sh: # A user of a server's own, who owns nothing else and cannot log in.
>>> note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' b5f3d0404fa7 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = ea3d36a7a072 ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || exit 1
}
<<< step_unit_in_place_of_others.sh: # What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
>>>     rm -f /var/lib/llamaherd/kept/llama-old/aside
<<< step_unit_in_place_of_others.sh: # Ends the run, where others serve in its place. What failed may still run. $1 is why.
>>> keep_what_serves unit

)
switch_1() (
<<< step_unit.sh: # A user of a server's own, who owns nothing else and cannot log in.
>>> account llama-chat || exit 1
<<< step_unit.sh: # A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
>>>         { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/next" || { rm -rf "$new"; exit 1; }
    # What served before stays the last that is kept until all that change with this one serve.
    exit 0
<<< step_unit.sh:     for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
>>> note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' b5f3d0404fa7 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = ea3d36a7a072 ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || exit 1
}
<<< step_unit_in_place_of_others.sh: # What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
>>>     rm -f /var/lib/llamaherd/kept/llama-old/aside
<<< step_unit_in_place_of_others.sh: # Ends the run, where others serve in its place. What failed may still run. $1 is why.
>>>     exit 1
<<< step_unit_from_a_container.sh: mark_untried
>>> echo "starting llama-chat.service: it has 300 s to load its model"
<<< step_unit_in_place_of_others.sh: began=$(date +%s) stopped=$(date +%s%3N)
>>>     [ ! -f "$kept/last/how" ] || [ "$(was)" = ea3d36a7a072 ] || systemctl stop llama-chat.service
    take_back "$why"
    ;;
esac
keep unit ea3d36a7a072 "$asked" || echo "llama-chat serves, and cannot be kept in $kept: a later change that fails cannot come back to it"

)
check_2() (
<<< step_project.sh: systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
>>> note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 56d67c9ce668 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = 6b3e9ef709bc ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || exit 1
}
<<< step_unit_in_place_of_others.sh: # What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
>>> no_room_with_going() {
<<< step_project_in_place_of_others.sh:     echo 'how much llama-drafter takes is not certain'
>>> going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-drafter'
<<< step_project_in_place_of_others.sh:     room=$(no_room_with_going) && return
>>> going_comes_back() {
<<< step_unit_in_place_of_others.sh:     come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
>>>     rm -f /var/lib/llamaherd/kept/llama-old/aside
<<< step_project_in_place_of_others.sh: # Ends the run, where others serve in its place. What failed may still run. $1 is why.
>>>     note_refused "$1"
    echo "llama-drafter is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
<<< step_project_in_place_of_others.sh:     echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
>>> keep_what_serves container

)
switch_2() (
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
<<< step_project.sh: # A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
>>>         { [ -z "${loaded:-}" ] || printf '%s\t%s\n' "$loaded" /var/lib/llamaherd/models/local/0404040404040404 >"$new/loaded"; } && how_kept "$1" "$2" >"$new/how" && sync "$new"/* &&
        ln -sfn "${new##*/}" "$kept/last.new" && mv -fT "$kept/last.new" "$kept/next" || { rm -rf "$new"; exit 1; }
    # What served before stays the last that is kept until all that change with this one serve.
    exit 0
<<< step_project.sh:     for each in "$kept"/*; do [ -L "$each" ] || [ "$each" = "$new" ] || [ "$each" -ef "$kept/before" ] || rm -rf "$each"; done
>>> note_refused() { (umask 077 && mkdir -p "${refused%/*}" && printf '%s\t%s\t%s\n' 56d67c9ce668 "$(date +'%F %T')" "$(printf %s "$1" | tr -s '\t\n' '  ' | cut -c -300)" >"$refused"); }
# All that change with it go back as well: whoever has begun this sees to that. $1 is why.
take_back() {
    printf '%s\n' "$1" >"$exchange/why"
    [ "$(was)" = 6b3e9ef709bc ] || note_refused "$1"
    [ ! -f "$kept/last/how" ] || [ "$(was)" = 6b3e9ef709bc ] || exit 1
}
<<< step_unit_in_place_of_others.sh: # What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
>>> no_room_with_going() {
<<< step_project_in_place_of_others.sh:     echo 'how much llama-drafter takes is not certain'
>>> going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-drafter'
<<< step_project_in_place_of_others.sh:     room=$(no_room_with_going) && return
>>> going_comes_back() {
<<< step_unit_in_place_of_others.sh:     come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
>>>     rm -f /var/lib/llamaherd/kept/llama-old/aside
<<< step_project_in_place_of_others.sh: # Ends the run, where others serve in its place. What failed may still run. $1 is why.
>>>     note_refused "$1"
    echo "llama-drafter is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
<<< step_project.sh: mark_untried
>>> echo "starting llama-drafter in its container: it has 300 s to load its model"
<<< step_project_in_place_of_others.sh: began=$(date +%s) stopped=$(date +%s%3N)
>>> docker network rm llama-drafter_default >/dev/null 2>&1 || :
keep container 6b3e9ef709bc "$asked" || echo "llama-drafter serves, and cannot be kept in $kept: a later change that fails cannot come back to it"

)
# The last line of a member's own words is why; of some there is none.
not_together() {
    [ -s "$exchange/why" ] || echo 'the reason is above' >"$exchange/why"
    sh "$exchange/back" "$1"
    exit 1
}
<<< step_unit.sh: # What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
>>> drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< step_unit.sh: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>> let_in() { nft delete table inet llamaherd-shut 2>/dev/null || :; }
# $1 is who, $2 what is kept of it.
stop_member() {
    echo "stopping $1: "'llama-chat, llama-drafter change together'
    drain "$2/last/asked"
<<< step_unit_in_place_of_others.sh:     systemctl stop "$1.service" 2>/dev/null
>>>     let_in
check_1 || exit 1
check_2 || exit 1
(umask 077 && rm -rf "$exchange.new" "$exchange" && mkdir -p "$exchange.new" && base64 -d >"$exchange.new/back" &&
    echo 'llama-chat, llama-drafter' >"$exchange.new/members" && sync "$exchange.new"/* && mv -T "$exchange.new" "$exchange") <<'END' || {
base64|# Ends what servers do together, by what was kept of each before the first was stopped: where all of them serve as declared,
base64|# that is kept from now on; else those that served before come back. It may be run again, after whatever ended it.
base64|# It goes on when nobody listens any more.
base64|trap : PIPE
base64|exchange=/var/lib/llamaherd/kept/.exchange
base64|# $1 is who did not serve, and empty where the run was cut off.
base64|failed=${1:-} lost=''
base64|end_of_journal() { rm -f "$exchange/back" && rm -rf "$exchange"; }
base64|was() { sed -n "s/.*was_spec=\([^ ]*\) .*/\1/p" "$1/how" 2>/dev/null; }
base64|# $1 is what is kept of it, $2 the note of what was tried before. The previous version stays until the new one has passed
base64|# its probation.
base64|settle() {
base64|    if [ -L "$1/next" ]; then
base64|        [ ! -f "$1/last/how" ] || [ "$(was "$1/last")" = "$(was "$1/next")" ] || ln -sfn "$(readlink "$1/last")" "$1/before"
base64|        mv -fT "$1/next" "$1/last"
base64|    fi
base64|    for each in "$1"/*; do [ -L "$each" ] || [ "$each" -ef "$1/last" ] || [ "$each" -ef "$1/before" ] || rm -rf "$each"; done
base64|    rm -f "$2"
base64|}
base64|if [ -e "$exchange/done" ]; then
base64|    settle /var/lib/llamaherd/kept/llama-chat /var/lib/llamaherd/refused/llama-chat
base64|    settle /var/lib/llamaherd/kept/llama-drafter /var/lib/llamaherd/refused/llama-drafter
base64|    rm -f /var/lib/llamaherd/kept/llama-old/aside
base64|    end_of_journal
base64|    # From here on, the host itself probes all of them, and restores all if one fails.
base64|    systemctl stop llamaherd-probation-chat 2>/dev/null
base64|    (umask 077 && install -d -m 0700 /run/llamaherd/probation && base64 -d >/run/llamaherd/probation/llama-chat.json) <<'END' &&
base64|base64|[{"service": "llama-chat", "kind": "unit", "spec": "ea3d36a7a072", "tried": "b5f3d0404fa7", "instance": "chat", "user": "llama-chat", "kept": "/var/lib/llamaherd/kept/llama-chat", "refused": "/var/lib/llamaherd/refused/llama-chat", "releases": "/var/lib/llamaherd/releases", "locks": "/run/llamaherd/locks", "lock_seconds": 3600, "seconds": 120, "prompts": true, "prove": "/opt/llamaherd/libexec/prove", "started": "/opt/llamaherd/libexec/started", "forget": "systemctl stop llamaherd-beside-chat.service 2>/dev/null\nsystemctl disable -q --now llama-chat.service\n# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.\n! id -u llama-chat >/dev/null 2>&1 || userdel llama-chat || exit 1\nrm -f /etc/systemd/system/llama-chat.service /run/llamaherd/started/llama-chat\nsystemctl daemon-reload\nsystemctl reset-failed llama-chat.service 2>/dev/null\n:\n"}, {"service": "llama-drafter", "kind": "container", "spec": "6b3e9ef709bc", "tried": "56d67c9ce668", "instance": "drafter", "user": "llama-drafter", "kept": "/var/lib/llamaherd/kept/llama-drafter", "refused": "/var/lib/llamaherd/refused/llama-drafter", "releases": "/var/lib/llamaherd/releases", "locks": "/run/llamaherd/locks", "lock_seconds": 3600, "seconds": 120, "prompts": true, "prove": "/opt/llamaherd/libexec/prove", "started": "/opt/llamaherd/libexec/started", "forget": "systemctl stop llamaherd-beside-drafter.service 2>/dev/null\ndocker stop llama-drafter >/dev/null 2>&1\ndocker rm -f llama-drafter >/dev/null 2>&1\ndocker network rm llama-drafter_default >/dev/null 2>&1\nrm -rf /etc/llamaherd/compose/drafter /var/lib/llamaherd/started/llama-drafter\n:\n"}]
base64|base64|\ No newline at end of file
base64|END
base64|        systemd-run --quiet --collect --unit=llamaherd-probation-chat --property=RuntimeMaxSec=8400 /opt/llamaherd/libexec/probation /run/llamaherd/probation/llama-chat.json ||
base64|        echo 'llama-chat, llama-drafter serve, but their probation did not start: the host does not roll them back if one fails within a minute' >&2
base64|    exit 0
base64|fi
base64|running() {
base64|    sed -z -n 's/^LLAMAHERD_SPEC=//p' "/proc/$(systemctl show -P MainPID "$1.service")/environ" 2>/dev/null | tr -d '\0'
base64|    docker inspect --type container --format '{{if eq .State.Status "running"}}{{index .Config.Labels "llamaherd.spec"}}{{end}}' "$1" 2>/dev/null
base64|}
base64|# Whoever was not stopped yet serves on.
base64|as_before() { [ -f "$2/last/how" ] && [ "$(running "$1")" = "$(was "$2/last")" ]; }
base64|stop() {
base64|    as_before "$1" "$2" || {
base64|        systemctl stop "$1.service" 2>/dev/null
base64|        docker stop "$1" >/dev/null 2>&1
base64|    }
base64|}
base64|put_back() { [ ! -f "$1" ] || { cp -p "$1" "$2.llamaherd-new" && mv -fT "$2.llamaherd-new" "$2"; }; }
base64|proved() {
base64|    python3 -I - "$1/last/asked" "$1/last/speeds" "$exchange/speeds" back \
base64|        $(systemctl show -P MainPID "$2.service") $(docker top "$2" -eo pid 2>/dev/null | sed 1d) <<'END'
base64|<<< templates/serve/prove.py: #!/usr/bin/python3 -I
base64|>>> sys.exit(code if why else 0)
base64|END
base64|}
base64|# $1 is who, $2 what is kept of it, $3 what forgets it as it was to be: of one that moves between unit and container.
base64|files_back() {
base64|    # What was tried is not kept.
base64|    rm -f "$2/next"
base64|    for each in "$2"/*; do [ -L "$each" ] || [ ! -d "$each" ] || [ "$each" -ef "$2/last" ] || [ "$each" -ef "$2/before" ] || rm -rf "$each"; done
base64|    if [ ! -f "$2/last/how" ]; then
base64|        # It never served.
base64|        systemctl -q disable "$1.service" 2>/dev/null
base64|        systemctl reset-failed "$1.service" 2>/dev/null
base64|        return 0
base64|    fi
base64|    . "$2/last/how"
base64|    "$3" "$was_kind"
base64|    put_back "$2/last/file" "$was_file" && put_back "$2/last/key" "$was_key"
base64|}
base64|start_before() {
base64|    if [ "$was_kind" = unit ]; then
base64|        systemctl -q --no-reload enable "$1.service" && systemctl daemon-reload || return 1
base64|        systemctl reset-failed "$1.service" 2>/dev/null
base64|        systemctl start "$1.service" 2>/dev/null
base64|    else
base64|        docker compose --progress plain -f "$was_file" up -d --force-recreate --remove-orphans --wait --wait-timeout "$was_seconds" >/run/llamaherd-compose.log 2>&1 || return 1
base64|        eval "set -- \"\$1\" $was_inputs"
base64|        /opt/llamaherd/libexec/started record container "$@"
base64|    fi
base64|}
base64|serve_before() {
base64|    [ -f "$2/last/how" ] && ! as_before "$1" "$2" || return 0
base64|    . "$2/last/how"
base64|    began=$(date +%s) why=''
base64|    if start_before "$1" && { [ ! -f "$2/last/asked" ] || why=$(proved "$2" "$1") || [ $? = 2 ]; }; then
base64|        rm -f "$2/untried"
base64|        echo "$1 serves again as before, spec $was_spec, after $(($(date +%s) - began)) s"
base64|    else
base64|        lost="$lost $1"
base64|        printf '%s\n' "$1 was put back to what served before, spec $was_spec, and that does not come up either: ${why:-it does not start}" >&2
base64|    fi
base64|}
base64|instead='one of llama-chat, llama-drafter'
base64|<<< step_unit_in_place_of_others.sh: # $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
base64|>>>         echo "$1 was started again, as $instead does not serve in its place, and does not come up either" >&2
base64|forget_1() {
base64|    [ "$1" != unit ] || return 0
base64|    {
base64|<<< step_unit.sh: systemctl stop llamaherd-beside-chat.service 2>/dev/null
base64|>>> systemctl reset-failed llama-chat.service 2>/dev/null
base64|    } >/dev/null 2>&1
base64|}
base64|forget_2() {
base64|    [ "$1" != container ] || return 0
base64|    {
base64|<<< step_project.sh: systemctl stop llamaherd-beside-drafter.service 2>/dev/null
base64|>>> rm -rf /etc/llamaherd/compose/drafter /var/lib/llamaherd/started/llama-drafter
base64|    } >/dev/null 2>&1
base64|}
base64|echo 'putting back what served before: llama-chat, llama-drafter'
base64|stop llama-chat /var/lib/llamaherd/kept/llama-chat
base64|stop llama-drafter /var/lib/llamaherd/kept/llama-drafter
base64|files_back llama-chat /var/lib/llamaherd/kept/llama-chat forget_1 || lost="$lost llama-chat"
base64|files_back llama-drafter /var/lib/llamaherd/kept/llama-drafter forget_2 || lost="$lost llama-drafter"
base64|systemctl daemon-reload
base64|# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
base64|# engine has its own way of sharing a port. Nobody reads what they still hold.
base64|ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8080 >/dev/null 2>&1
base64|# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
base64|# engine has its own way of sharing a port. Nobody reads what they still hold.
base64|ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
base64|serve_before llama-chat /var/lib/llamaherd/kept/llama-chat
base64|serve_before llama-drafter /var/lib/llamaherd/kept/llama-drafter
base64|come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
base64|come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
base64|[ -z "$failed" ] || {
base64|    why=$(cat "$exchange/why")
base64|    if [ -z "$lost" ]; then
base64|        printf '%s\n' 'llama-chat, llama-drafter serve as before, since they change together, and '"$failed does not serve as declared: $why" >&2
base64|    else
base64|        printf '%s\n' "$failed does not serve as declared: $why" >&2
base64|    fi
base64|    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
base64|}
base64|end_of_journal
base64|[ -z "$lost" ]
END
    echo 'cannot write the journal of llama-chat, llama-drafter to /var/lib/llamaherd/kept/.exchange, so they were left as they are' >&2
    echo "  help: \`df -h /var/lib/llamaherd/kept\` says whether there is room" >&2
    exit 1
}
# A probation that goes on would take what is tried from here on for what it watches.
systemctl stop llamaherd-probation-chat llamaherd-probation-drafter 2>/dev/null
stop_member llama-chat /var/lib/llamaherd/kept/llama-chat
stop_member llama-drafter /var/lib/llamaherd/kept/llama-drafter
switch_1 || not_together llama-chat
switch_2 || not_together llama-drafter
: >"$exchange/done" && sync "$exchange/done"
sh "$exchange/back"
