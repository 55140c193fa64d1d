<<< step_unit_on_cards.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> take_back() {
<<< step_unit_in_place_of_others.sh:     [ -f "$kept/last/how" ] || give_way "$1" || return 0
>>>     if [ "$was_kind" != unit ]; then
<<< step_unit_on_cards.sh: systemctl stop llamaherd-beside-reasoner.service 2>/dev/null
>>>     exit 1
<<< step_unit_in_place_of_others.sh: # What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
>>> no_room_with_going() {
    echo 'how much llama-reasoner takes is not certain'
    return 1
}
<<< step_unit_in_place_of_others.sh: # $1 is who, $2 what is kept of it, $3 why.
>>> going_steps_aside() {
    step_aside llama-old /var/lib/llamaherd/kept/llama-old 'its port is to be that of llama-reasoner'
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-reasoner
<<< step_unit_in_place_of_others.sh: # $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
>>>     any_going || return 0
    systemctl disable -q --now llama-reasoner.service
    systemctl reset-failed llama-reasoner.service 2>/dev/null
    note_refused "$1"
    echo "llama-reasoner is stopped, and what it was to replace goes on, llama-old, llama-boxed: what is declared did not serve, since $1" >&2
<<< step_unit_in_place_of_others.sh:     echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
>>>     } 2>&1) || cannot_write "$1" "$why"
<<< step_unit_on_cards.sh: put_file /etc/systemd/system/llama-reasoner.service /etc/systemd/system 0644 root <<'END'
>>> let_in
going_steps_aside
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8001 >/dev/null 2>&1
<<< step_unit_on_cards.sh: # Not before the old server is stopped: what is asked of it between its last request and that is cut off.
>>> end_beside
going_has_gone
start_probation
