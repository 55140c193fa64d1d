# An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
exec 8>/run/llamaherd.lock && flock 8 || exit 1
systemctl disable -q --now llama-old.service
rm -f /etc/systemd/system/llama-old.service
systemctl daemon-reload
systemctl reset-failed llama-old.service 2>/dev/null
rm -f /etc/llamaherd/keys/old
:
