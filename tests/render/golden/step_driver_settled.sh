# What was kept of the driver before is removed: the one that is loaded stays.
<<< driver_undo_judged.sh: # Nobody goes back any more, and what was kept for that is removed.
>>>     rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed /var/lib/llamaherd/driver-reading
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'keeping a driver' || exit 1
disarm
systemctl daemon-reload
