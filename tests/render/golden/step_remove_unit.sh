# An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'removing old' || exit 1
<<< step_unit.sh: # What a server is answering ends before it does, as far as that takes no longer than it may. How to ask it is kept since
>>> drain() {
    grep -qs '"metrics"' "${1:-/var/lib/llamaherd/kept/llama-old/last/asked}" || return 0
    ${direct:-} python3 -I - "${1:-/var/lib/llamaherd/kept/llama-old/last/asked}" 30 2009999999 ${direct:+led} <<'END'
<<< step_unit.sh: """Wait until a server answers no request any more, for so many seconds at most, and have none come after the last."""
>>> let_in() { nft delete table inet llamaherd-shut 2>/dev/null || :; }
drain
systemctl stop llamaherd-beside-old.service 2>/dev/null
systemctl disable -q --now llama-old.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-old >/dev/null 2>&1 || userdel llama-old || exit 1
rm -f /etc/systemd/system/llama-old.service /run/llamaherd/started/llama-old
systemctl daemon-reload
systemctl reset-failed llama-old.service 2>/dev/null
systemctl stop llamaherd-probation-old.service 2>/dev/null
rm -rf /etc/llamaherd/keys/old /var/lib/llamaherd/kept/llama-old /var/lib/llamaherd/refused/llama-old
:

let_in
