# Power limits, clocks and fans of cards: the files, and the unit anew where a card is not held to what is planned.
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'power limits' || exit 1
<<< step_driver.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"

systemctl daemon-reload
systemctl -q enable llamaherd-gpu-power.service || exit 1
systemctl reset-failed llamaherd-gpu-power.service 2>/dev/null
systemctl restart llamaherd-gpu-power.service 2>/dev/null
ended=$?
# What it said this time: what is held now, and what a card refuses.
journalctl --sync 2>/dev/null
journalctl -q -o cat --no-pager -n 40 _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID llamaherd-gpu-power.service)" 2>/dev/null | cut -c -300
if [ "$ended" != 0 ]; then
    echo "a card is not held to what is declared; llamaherd-gpu-power.service says why above" >&2
    # Left alone, it would go on trying behind our back.
    systemctl stop llamaherd-gpu-power.service
    exit 1
fi
