# A build that is what it was built as, and that something else is new about: times, owner, permissions.
<<< step_build.sh: # What a finished build is known by without reading all of it: who replaces a program changes something of this.
>>>         sed -n 's/^ *"\(.*\)": "\([0-9a-f]*\)" *$/\2  \1/p' | sha256sum -c --strict --status) 2>/dev/null
<<< step_accounts.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
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
