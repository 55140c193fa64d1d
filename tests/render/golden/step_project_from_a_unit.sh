<<< step_project.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> keep_what_serves container
<<< step_unit.sh: keep_what_serves unit
>>>     } 2>&1) || cannot_write "$1" "$why"
<<< step_project.sh: put_file /etc/llamaherd/compose/drafter/compose.yaml /etc/llamaherd/compose/drafter 0644 root <<'END'
>>> docker stop llama-drafter >/dev/null 2>&1
# Also where nothing else is to be done: a boot starts what a killed run had enabled.
systemctl stop llama-drafter.service 2>/dev/null
<<< step_project.sh: let_in
>>> end_beside
systemctl stop llamaherd-beside-drafter.service 2>/dev/null
systemctl disable -q --now llama-drafter.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-drafter >/dev/null 2>&1 || userdel llama-drafter || exit 1
rm -f /etc/systemd/system/llama-drafter.service /run/llamaherd/started/llama-drafter
systemctl daemon-reload
systemctl reset-failed llama-drafter.service 2>/dev/null
:

start_probation
