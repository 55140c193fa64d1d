# Lets an archive in that the controller sent, if it is the one that the inventory names.
file=/var/lib/llamaherd/incoming/abababababababababababababababababababababababababababababababab
have=$(sha256sum "$file" | cut -d ' ' -f 1)
if [ "$have" != abababababababababababababababababababababababababababababababab ]; then
    rm -f "$file"
    echo "the archive arrived with sha256 $have, the inventory says abababababababababababababababababababababababababababababababab" >&2
    exit 1
fi
chown llama-build "$file" && chmod 0644 "$file" && mv -f "$file" /var/cache/llamaherd/sources/abababababababababababababababababababababababababababababababab
