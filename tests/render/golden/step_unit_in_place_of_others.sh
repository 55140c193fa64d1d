<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> take_back() {
    [ -f "$kept/last/how" ] || give_way "$1" || return 0
<<< step_unit.sh:     . "$kept/last/how"
>>>     exit 1
# What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
# and comes back where what is new does not serve: a mark beside what is kept of it says so, also to a later run.
# So does what is about to: at a boot, or after it could not have its port.
runs() {
    case $(systemctl show -P ActiveState -P Job "$1.service" 2>/dev/null | tr '\n' ' ') in active* | activating* | reloading* | *[0-9]*) return 0 ;; esac
    case $(docker inspect --type container --format '{{.State.Status}}' "$1" 2>/dev/null) in running | restarting) return 0 ;; esac
    return 1
}
any_going() {
    if [ -e /var/lib/llamaherd/kept/llama-old/aside ] || runs llama-old; then return 0; fi
    if [ -e /var/lib/llamaherd/kept/llama-boxed/aside ] || runs llama-boxed; then return 0; fi
    return 1
}
no_room_with_going() {
    echo 'how much llama-chat takes is not certain'
    return 1
}
# $1 is who, $2 what is kept of it, $3 why.
step_aside() {
    runs "$1" || return 0
    echo "stopping $1, which is not declared any more: $3"
    drain "$2/last/asked"
    (umask 077 && install -d -m 0700 "${2%/*}" "$2" && : >"$2/aside" && sync "$2/aside") || exit 1
    systemctl stop "$1.service" 2>/dev/null
    docker stop "$1" >/dev/null 2>&1
    let_in
}
going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-chat'
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-chat
# $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
come_back() {
    [ -e "$2/aside" ] || return 0
    back='' began=$(date +%s)
    if [ -e "/etc/systemd/system/$1.service" ]; then
        systemctl reset-failed "$1.service" 2>/dev/null
        systemctl start "$1.service" 2>/dev/null && back=yes
    elif [ -e "$3" ]; then
        docker compose --progress plain -f "$3" up -d --no-recreate --wait --wait-timeout 7200 >/run/llamaherd-compose.log 2>&1 && back=yes
    fi
    if [ "$back" ]; then
        rm -f "$2/aside"
        echo "$1 serves again, after $(($(date +%s) - began)) s: $instead does not serve in its place" >&2
    else
        echo "$1 was started again, as $instead does not serve in its place, and does not come up either" >&2
    fi
}
going_comes_back() {
    come_back llama-old /var/lib/llamaherd/kept/llama-old /etc/llamaherd/compose/old/compose.yaml
    come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
}
# Whose place is taken does not come back, also where another instance of this run fails.
going_has_gone() {
    :
    rm -f /var/lib/llamaherd/kept/llama-old/aside
}
at_exit_with_going() {
    [ "$1" = 0 ] || going_comes_back
    at_exit
}
trap 'at_exit_with_going $?' EXIT
# Ends the run, where others serve in its place. What failed may still run. $1 is why.
give_way() {
    any_going || return 0
    systemctl disable -q --now llama-chat.service
    systemctl reset-failed llama-chat.service 2>/dev/null
    note_refused "$1"
    echo "llama-chat is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
<<< step_unit.sh: keep_what_serves unit
>>> base64|WantedBy=multi-user.target

<<< step_unit.sh: # With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
>>> let_in
going_steps_aside
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8080 >/dev/null 2>&1
<<< step_unit.sh: # Not before the old server is stopped: what is asked of it between its last request and that is cut off.
>>> end_beside
going_has_gone
start_probation
