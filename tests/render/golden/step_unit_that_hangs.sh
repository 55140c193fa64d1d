<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> account llama-chat || exit 1

<<< step_unit.sh: # A switch is taken back where what is new does not serve: what served before is kept, and comes back. So it goes on when
>>> base64|\ No newline at end of file
# Another run may have held the lock since we looked, and have put back what served before: what is not written anew would
# then be another server's, and be taken for what is declared.
sha256sum --status -c - 2>/dev/null <<'END' || {
45077dc8cff0bca83024dc11f6b73023cc8281da7f1a4c5e6de018fa9fb2499c  /etc/systemd/system/llama-chat.service
a7998f247bd965694ff227fa325c81169a07471a8b6808d3e002a486c4e65975  /etc/llamaherd/keys/chat
END
    echo "another run has changed llama-chat since this one looked at it, so it was left as it is" >&2
    echo "  help: \`herd up\` looks again" >&2
    exit 1
}
<<< step_unit.sh: file_of() { if [ "$1" = unit ]; then echo /etc/systemd/system/llama-chat.service; else echo /etc/llamaherd/compose/chat/compose.yaml; fi; }
>>>     } 2>&1) || cannot_write "$1" "$why"

# Nobody loses what somebody wrote, and a unit is what is declared.
aside=/var/lib/llamaherd/set-aside/'etc_systemd_system_llama-chat.service.d_it'"'"'s mine.conf'.$(date +%Y%m%dT%H%M%S)
if [ -e '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf' ] || [ -L '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf' ]; then
    install -d -m 0700 /var/lib/llamaherd/set-aside && mv -fT '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf' "$aside" || exit 1
    echo '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf changed llama-chat.service and is not declared; it lies in' "$aside now"
    rmdir "$(dirname '/etc/systemd/system/llama-chat.service.d/it'"'"'s mine.conf')" 2>/dev/null
fi
<<< step_unit.sh: # With --no-reload: systemd would read all of its files anew twice, which takes as long as many a server stops.
>>> run=$(systemctl show -P InvocationID llama-chat.service)
if [ -z "$unproven" ] && [ "$run" != 8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f8f ] && systemctl -q is-active llama-chat.service &&
<<< step_unit.sh:     tr '\0' '\n' <"/proc/$(systemctl show -P MainPID llama-chat.service)/environ" | grep -Fqx LLAMAHERD_SPEC=ea3d36a7a072 &&
>>>     exit 0
echo 'llama-chat.service hangs: its process is stopped (SIGSTOP)'
# It could not end by itself; and nothing is done to a unit that is frozen.
systemctl thaw llama-chat.service >/dev/null 2>&1
systemctl kill --kill-who=main -s KILL llama-chat.service
echo "starting llama-chat.service: it has 300 s to load its model"
<<< step_unit.sh: began=$(date +%s) stopped=$(date +%s%3N)
>>> start_probation
