{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# Removes from the store what is unused, if it still is, and says so in facts. What is left by a kill in the middle has neither its name nor a
# manifest, and the next run removes it.
<<< store_look.sh: # Who uses the store. `uses` prints a line "kind TAB name TAB path" for every path in it that is named, open or mapped.
>>>         chmod 0644 .manifest.part && sync .manifest.part
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
cd "$real" || exit 1
# The first is held while a fetch is begun, the second while what has arrived is let in.
open_lock 9 fetch && open_lock 8 store || exit 1
if ! flock -n 9 || fetching || ! flock -w 30 8; then
    say busy "$(head -n 1 /run/llamaherd/fetch/progress 2>/dev/null)"
    finish
fi

# $1 folder; `keep`: names in it, one a line. Who uses anything else in the folder.
user() {
    uses | folder=$store/$1 awk -F '\t' '
        function within(path, folder) {
            return index(path, folder) == 1 && substr(path, length(folder) + 1, 1) !~ /[A-Za-z0-9._-]/
        }
        {
            path = $0
            sub(/^[^\t]*\t[^\t]*\t/, "", path)
            wanted = within(path, ENVIRON["folder"]) || path == ENVIRON["store"]
            count = split(ENVIRON["keep"], kept, "\n")
            for (i = 1; i <= count; i++)
                if (kept[i] != "" && within(path, ENVIRON["folder"] "/" kept[i]))
                    wanted = 0
            if (wanted && !found++)
                print $2
        }'
}
# $1 folder; `keep` as above. Whether it may be touched; if not, it says why.
free() {
    if [ ! -d "./$1" ] || [ "$(readlink -f "./$1")" != "$real/$1" ]; then
        say kept "$1" "it is no longer there"
        return 1
    fi
    by=$(user "$1")
    [ -z "$by" ] || say kept "$1" "$by uses it"
    [ -z "$by" ]
}
# $1 a folder or file: moved out of the way by one rename, so that it never lies half in its place
discard() {
    bin=$(mktemp -d .trash-XXXXXX) && mv -T "./$1" "$bin/it" && rm -f "$bin/it/.manifest" && rm -rf "$bin"
}
# Folders above that have nothing in them now.
tidy() { rmdir -p -- "$(dirname "$1")" 2>/dev/null; }

rm -rf .trash-*
keep=''
export keep
if free unsloth/old/abababababababababababababababababababab; then
    { discard unsloth/old/abababababababababababababababababababab && say removed unsloth/old/abababababababababababababababababababab; } ||
        say kept unsloth/old/abababababababababababababababababababab "it cannot be removed"
    tidy unsloth/old/abababababababababababababababababababab
fi
keep='a Q4_K_M.gguf'
export keep
if free unsloth/new/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd; then
    # First out of the list, so that none is missed; its time stays: nothing else has changed for those who use the rest.
    (
        cd ./unsloth/new/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd && printf '%s\n' 'a Q8_0.gguf' | unvouch &&
            touch -r .manifest .manifest.part && mv -f .manifest.part .manifest
    ) && discard 'unsloth/new/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd/a Q8_0.gguf' && say removed unsloth/new/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd ||
        say kept unsloth/new/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd "it cannot be removed"
    tidy 'unsloth/new/cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd/a Q8_0.gguf'
fi
rm -f .incoming/1111111111111111111111111111111111111111111111111111111111111111 .incoming/1111111111111111111111111111111111111111111111111111111111111111.* && say removed .incoming/1111111111111111111111111111111111111111111111111111111111111111

finish
} </dev/null
