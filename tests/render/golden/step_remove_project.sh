# An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
exec 8>/run/llamaherd.lock && flock 8 || exit 1
docker stop llama-old >/dev/null 2>&1
docker rm -f llama-old >/dev/null 2>&1
docker network rm llama-old_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/old /var/lib/llamaherd/started/llama-old
rm -f /etc/llamaherd/keys/old
:
