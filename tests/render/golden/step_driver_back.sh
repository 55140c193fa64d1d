# Goes back to the driver of before, by the program and the unit that do so where a driver does not answer. Whatever ends
# it, the next boot goes on with it.
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'taking a driver back' || exit 1
before=/var/lib/llamaherd/driver-before
[ -e "$before/answered" ] && [ -x /opt/llamaherd/libexec/driver-undo ] || {
    echo 'what was kept of the driver before is gone' >&2
    exit 1
}
printf '%s\n' 'chat is slower by it: writing code -9.0%' >"$before/slower.new" && mv -f "$before/slower.new" "$before/slower" || exit 1
(
<<< step_driver.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
<<< step_driver_distribution.sh: put_file /etc/systemd/system/llamaherd-driver-undo.service /etc/systemd/system 0644 root <<'END'
>>> base64|WantedBy=multi-user.target
) && systemctl daemon-reload && systemctl -q enable llamaherd-driver-undo.service || exit 1
# The mark is gone after the reboot: until then nobody takes this for its end.
mkdir -p /run/llamaherd
: >/run/llamaherd/reboot && sync && systemctl --no-block start llamaherd-driver-undo.service
