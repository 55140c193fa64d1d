# A run was cut off while it changed servers together.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'ending what was done with llama-chat, llama-drafter' || exit 1
[ ! -s /var/lib/llamaherd/kept/.exchange/back ] || sh /var/lib/llamaherd/kept/.exchange/back
