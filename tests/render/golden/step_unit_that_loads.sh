exec 8>/run/llamaherd.lock && flock 8 || exit 1  # two runs at once would restart each other's servers

# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077

began=$(date +%s)
systemctl daemon-reload
systemctl -q enable llama-chat.service || exit 1
systemctl reset-failed llama-chat.service 2>/dev/null
if ! systemctl start llama-chat.service 2>/dev/null; then
    journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-chat.service is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: journalctl -u llama-chat.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-chat.service
    exit 1
fi
