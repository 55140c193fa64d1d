# A build that is what it was built as, and that something else is new about: times, owner, permissions.
# What a finished build is known by without reading all of it: who replaces a program changes something of this.
stamp() {
    (cd "$1" && stat -c '%n %a %u' . bin && stat -c '%n %a %u %s %.Y %.Z %i' manifest.json bin/*) 2>/dev/null
}
# Whether its programs are those that its manifest has the hashes of.
intact() {
    (cd "$1/bin" && sed -n 's/.*"sha256": {\(.*\)}}.*/\1/p' ../manifest.json | tr ',' '\n' |
        sed -n 's/^ *"\(.*\)": "\([0-9a-f]*\)" *$/\2  \1/p' | sha256sum -c --strict --status) 2>/dev/null
}
# Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
locks=/run/llamaherd/locks
# $1 file descriptor, $2 name; opens the lock, and does not wait for it.
open_lock() {
    (umask 022 && mkdir -p "${locks%/*}") && mkdir -m 0700 "$locks" 2>/dev/null
    if [ -L "$locks" ] || [ "$(stat -c '%F %u %a' "$locks")" != "directory $(id -u) 700" ]; then
        echo "$locks is no folder of root's alone, as locks need one (mode 0700): see who made it, remove it, and run again" >&2
        return 1
    fi
    (umask 077 && : >>"$locks/$2") && eval "exec $1<>\"\$locks/$2\""
}
# $3 seconds to wait, $4 what it is held for: told to whoever waits for us meanwhile.
hold() {
    open_lock "$1" "$2" || return 1
    if ! flock -n "$1"; then
        by=$(cat "$locks/$2")
        echo "waiting for another run, ${by:-which has just begun}, for up to $3 s"
        if ! flock -w "$3" "$1"; then
            by=$(cat "$locks/$2")
            echo "after $3 s another run, ${by:-which does not say what it is}, still holds $locks/$2; see with \`ps\` whether it works or hangs, wait or end it, and run again" >&2
            return 1
        fi
    fi
    echo "process $$ since $(date +%T): $4" >"$locks/$2"
}
hold 8 build 3600 'looking at llama.cpp-254c2e111fca' || exit 1
home=/opt/llamaherd/builds/llama.cpp-254c2e111fca
intact $home || {
    echo "$home is not what was built; run again, and it is built anew" >&2
    exit 1
}
# A library beside a program may be taken for its own.
for file in $home/bin/* $home/bin/.[!.]*; do
    if [ ! -e "$file" ] && [ ! -L "$file" ]; then continue; fi
    ! grep -Fq "\"${file##*/}\": \"" $home/manifest.json || continue
    install -d -m 0700 /var/lib/llamaherd/set-aside || exit 1
    to=/var/lib/llamaherd/set-aside/$(printf '%s' "${file#/}" | tr / _).$(date +%Y%m%dT%H%M%S)
    mv -T "$file" "$to" && echo "$file is no part of what was built; it lies in $to now" || exit 1
done
chown -R root:root $home && chmod 0755 $home $home/bin $home/bin/* && chmod 0644 $home/manifest.json &&
    rm -f $home/.stamp && stamp $home >$home/.stamp && chmod 0644 $home/.stamp
