# Lets an archive in that the controller sent, if it is the one that the inventory names.
file=/var/lib/llamaherd/incoming/abababababababababababababababababababababababababababababababab
source=/var/cache/llamaherd/sources/abababababababababababababababababababababababababababababababab
<<< step_accounts.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'letting an archive in' || exit 1
# Another run has sent it, too, and let it in.
[ -e "$file" ] || [ ! -f "$source" ] || exit 0
have=$(sha256sum "$file" | cut -d ' ' -f 1)
if [ "$have" != abababababababababababababababababababababababababababababababab ]; then
    rm -f "$file"
    echo "the archive arrived with sha256 $have, the inventory says abababababababababababababababababababababababababababababababab" >&2
    exit 1
fi
chown llama-build "$file" && chmod 0644 "$file" && mv -f "$file" "$source"
