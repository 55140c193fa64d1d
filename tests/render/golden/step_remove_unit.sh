# An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
exec 8>/run/llamaherd.lock && flock 8 || exit 1
systemctl disable -q --now llama-old.service
# The unit's file goes after its user: as long as it is there, the next run knows that this one did not end.
! id -u llama-old >/dev/null 2>&1 || userdel llama-old || exit 1
rm -f /etc/systemd/system/llama-old.service /run/llamaherd/started/llama-old
systemctl daemon-reload
systemctl reset-failed llama-old.service 2>/dev/null
rm -f /etc/llamaherd/keys/old
:
