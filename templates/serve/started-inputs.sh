# What a server is started with, a line each: what it is, its hash or number, where it is. $1 is what systemd or Docker
# says of it, $2 the file of its key or -, and then come the folders of its models.
started_with() (
    printf '%s\n' "$1" | sed -n 's/^InvocationID=/run\t/p'
    # A unit is its file and its drop-ins.
    printf '%s\n' "$1" | sed -n 's/^FragmentPath=//p; s/^DropInPaths=//p' | sed 's/ \//\n\//g' | grep . |
        tr '\n' '\0' | xargs -0 -r sha256sum | sed 's/^\([0-9a-f]*\)  /file\t\1\t/'
    # With a secret of this host: who reads the hash cannot try keys.
    secret={{ root }}/var/lib/llamaherd/started/.secret
    [ "$2" = - ] || [ ! -s "$secret" ] ||
        printf 'key\t%s\t%s\n' "$(cat "$secret" "$2" | sha256sum | cut -d ' ' -f 1)" "$2"
    shift 2
    # A file that came again is another one, which only a new start reads.
    for folder; do
        folder=$folder awk -F '\t' '{ print "model\t" $3 "\t" ENVIRON["folder"] "/" $4 }' "$folder/.manifest"
        find "$folder" -type f ! -name .manifest -printf 'inode\t%i\t%p\n'
    done
) 2>/dev/null

# What no longer holds of the record $1, a line each: what it is, and where; what holds now comes on stdin.
changed_since() {
    if [ -f "$1" ]; then
        grep -Fxvf - "$1" | awk -F '\t' '{ print $1 "\t" $NF }'
    else
        cat >/dev/null
        printf 'record\t%s\n' "$1"
    fi
}
