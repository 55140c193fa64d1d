<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> keep_what_serves unit
<<< step_project.sh: keep_what_serves container
>>>     } 2>&1) || cannot_write "$1" "$why"
<<< step_unit.sh: put_file /etc/systemd/system/llama-chat.service /etc/systemd/system 0644 root <<'END'
>>> base64|WantedBy=multi-user.target

<<< step_unit.sh: # With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
>>> systemctl stop llama-chat.service 2>/dev/null
# Also where nothing else is to be done: a boot starts what ran when its host died.
docker stop llama-chat >/dev/null 2>&1
<<< step_unit.sh: let_in
>>> end_beside
systemctl stop llamaherd-beside-chat.service 2>/dev/null
docker stop llama-chat >/dev/null 2>&1
docker rm -f llama-chat >/dev/null 2>&1
docker network rm llama-chat_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/chat /var/lib/llamaherd/started/llama-chat
:

start_probation
