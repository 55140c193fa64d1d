# Brings the files of one model into the store: each into a .part, which gets its name once its hash is right.
# The manifest is written last and says of every file that it was whole: size, time, hash, name.
store=/var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
mkdir -p "$store" /var/lib/llamaherd/incoming
exec 9>"$store/.lock"
flock -n 9 || { echo "another run fetches gemma: waiting for it"; flock 9; }
umask 022

# $1 name, $2 sha256: whether the file is there and whole
whole() { [ -f "$store/$1" ] && [ "$(sha256sum <"$store/$1" | cut -d ' ' -f 1)" = "$2" ]; }

size() { stat -c %s "$1" 2>/dev/null || echo 0; }

# $1 part, $2 name, $3 sha256
admit() {
    have=$(sha256sum <"$1" | cut -d ' ' -f 1)
    if [ "$have" != "$3" ]; then
        rm -f "$1"
        echo "$2 arrived with sha256 $have, but $3 was expected. Nothing of it was kept." >&2
        exit 1
    fi
    chown root:root "$1" && chmod 0644 "$1" && mkdir -p "$(dirname "$store/$2")" && mv -f "$1" "$store/$2"
}

if ! whole gemma.gguf a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5; then
    admit /var/lib/llamaherd/incoming/a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 gemma.gguf a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5
fi
rm -f /var/lib/llamaherd/incoming/a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 
cd "$store" && {
    stat -c '%s	%.9Y	a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5	%n' gemma.gguf
} >.manifest.part && mv -f .manifest.part .manifest && chmod 0644 .manifest
