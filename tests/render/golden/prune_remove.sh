{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# Removes what is of no use, if it still is of none, and says so in facts. What a kill in the middle leaves has no name any more,
# and goes the next time.
<<< prune_look.sh: # Who uses the store. `uses` prints a line "kind TAB name TAB path" for every path in it that is named, open or mapped.
>>>             docker ps -a --filter "ancestor=$image" --format '{{.Names}}' 2>/dev/null | sed "s|.*|container\t&\t$image|"
    } | sort -u
}

<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
# While the first is held no server is started, while the second is none is let in.
open_lock 8 host && open_lock 9 build || exit 1
if ! flock -w 10 8 || ! flock -w 10 9; then
    say busy
    finish
fi
[ -z "$real" ] || rm -rf "$real"/.trash-*
rm -rf /var/cache/llamaherd/sources/.trash-* "$work"/.trash-* /etc/llamaherd/presets/.trash-*
all=$(needs)
# $1 what, $2 what it is called in answers, $3 the folder of all of them
free() {
    by=$(printf '%s\n' "$all" | awk -F '\t' -v thing="$1" -v all="$3" 'index($3, thing) == 1 || $3 == all { print $1 " " $2; exit }')
    [ -z "$by" ] || say kept "$2" "$by needs it"
    [ -z "$by" ]
}
# $1 a file or folder, $2 what it is called: out of the way by one rename, so that it never lies half in its place.
discard() {
    bin=$(mktemp -d "$(dirname "$1")/.trash-XXXXXX") && mv -T "$1" "$bin/it" && rm -rf "$bin" && say removed "$2" ||
        say kept "$2" 'it cannot be removed'
}
free llama.cpp-000000000000 'build llama.cpp-000000000000' "$store" && discard "$real"/llama.cpp-000000000000 'build llama.cpp-000000000000'
if free llamaherd/engine:llama.cpp-000000000000-abcdef 'image llamaherd/engine:llama.cpp-000000000000-abcdef' "$store"; then
    docker image rm llamaherd/engine:llama.cpp-000000000000-abcdef >/dev/null 2>&1 && say removed 'image llamaherd/engine:llama.cpp-000000000000-abcdef' || say kept 'image llamaherd/engine:llama.cpp-000000000000-abcdef' 'Docker does not remove it'
fi
free card-0123456789ab.ini 'preset card-0123456789ab.ini' /etc/llamaherd/presets && discard /etc/llamaherd/presets/card-0123456789ab.ini 'preset card-0123456789ab.ini'
if building; then
    say kept 'source abababababababababababababababababababababababababababababababab' 'something is built just now'
else
    discard /var/cache/llamaherd/sources/abababababababababababababababababababababababababababababababab 'source abababababababababababababababababababababababababababababababab'
fi
if building; then
    say kept 'work llama.cpp-111111111111' 'something is built just now'
else
    discard /var/lib/llamaherd/work/llama.cpp-111111111111 'work llama.cpp-111111111111'
fi
DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=30 clean >/dev/null 2>&1 && say removed 'packages apt' || say kept 'packages apt' 'apt does not remove them'

finish
} </dev/null
