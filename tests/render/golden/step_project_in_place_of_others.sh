<<< step_project.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> take_back() {
    [ -f "$kept/last/how" ] || give_way "$1" || return 0
<<< step_project.sh:     . "$kept/last/how"
>>>     exit 1
<<< step_unit_in_place_of_others.sh: # What is not declared any more goes on until what is new has answered a prompt, where both have room. Else it is stopped,
>>> any_going() {
<<< step_unit_in_place_of_others.sh:     if [ -e /var/lib/llamaherd/kept/llama-boxed/aside ] || runs llama-boxed; then return 0; fi
>>> no_room_with_going() {
    echo 'how much llama-drafter takes is not certain'
    return 1
}
<<< step_unit_in_place_of_others.sh: # $1 is who, $2 what is kept of it, $3 why.
>>> going_steps_aside() {
    room=$(no_room_with_going) && return
    step_aside llama-boxed /var/lib/llamaherd/kept/llama-boxed "$room"
}
instead=llama-drafter
<<< step_unit_in_place_of_others.sh: # $1 is who, $2 what is kept of it, $3 its Compose file; $instead does not serve.
>>> going_comes_back() {
<<< step_unit_in_place_of_others.sh:     come_back llama-boxed /var/lib/llamaherd/kept/llama-boxed /etc/llamaherd/compose/boxed/compose.yaml
>>> going_has_gone() {
}
<<< step_unit_in_place_of_others.sh: at_exit_with_going() {
>>>     any_going || return 0
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    note_refused "$1"
    echo "llama-drafter is stopped, and what it was to replace goes on, llama-boxed: what is declared did not serve, since $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
<<< step_project.sh: keep_what_serves container
>>> let_in
going_steps_aside
# Connections of the server that was stopped keep its port from one of another engine or user for up to a minute: each
# engine has its own way of sharing a port. Nobody reads what they still hold.
ss -Ktn state time-wait state fin-wait-1 state fin-wait-2 state closing state last-ack sport = :8081 >/dev/null 2>&1
<<< step_project.sh: if ! docker compose --progress plain -f /etc/llamaherd/compose/drafter/compose.yaml up -d --force-recreate --remove-orphans \
>>> end_beside
going_has_gone
start_probation
