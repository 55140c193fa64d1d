# An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
docker compose -f /etc/llamaherd/compose/old/compose.yaml down >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/old
:
