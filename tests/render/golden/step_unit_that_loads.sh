<<< step_unit_that_hangs.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     } 2>&1) || cannot_write "$1" "$why"
# With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
systemctl -q --no-reload enable llama-chat.service && systemctl daemon-reload || exit 1
# The server goes on as it was started: a change of its unit that needs no restart is part of that from here on.
/opt/llamaherd/libexec/started record unit llama-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
began=$(date +%s) stopped=$(date +%s%3N)
let_in
# Not before the old server is stopped: what is asked of it between its last request and that is cut off.
systemctl reset-failed llama-chat.service 2>/dev/null
if ! systemctl start llama-chat.service 2>/dev/null; then
<<< step_unit.sh:     journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
>>> start_probation
