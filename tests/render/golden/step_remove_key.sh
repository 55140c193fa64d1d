# A key that no server reads any more.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'removing the key of old' || exit 1
rm -f /etc/llamaherd/keys/old
