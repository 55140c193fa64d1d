<<< step_remove_unit.sh: # An instance that the inventory no longer has, or has elsewhere, is stopped and forgotten. Models and builds stay.
>>> systemctl stop llamaherd-beside-old.service 2>/dev/null
docker stop llama-old >/dev/null 2>&1
docker rm -f llama-old >/dev/null 2>&1
docker network rm llama-old_default >/dev/null 2>&1
rm -rf /etc/llamaherd/compose/old /var/lib/llamaherd/started/llama-old
<<< step_remove_unit.sh: systemctl stop llamaherd-probation-old.service 2>/dev/null
>>> let_in
