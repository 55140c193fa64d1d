{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# Hashes the files of models, with what the host can spare, and tells how far it is every two seconds, in facts.
# `store/hashes.py` reads it. A file that is not what it should be is no longer vouched for: it is fetched again.
<<< store_prune.sh: # Who uses the store. `uses` prints a line "kind TAB name TAB path" for every path in it that is named, open or mapped.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hasher=''
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
# Also where nobody listens any more.
trap '[ -z "$hasher" ] || kill "$hasher" 2>/dev/null; exit 1' HUP INT TERM PIPE
slow='nice -n 19'
ionice -c 3 true 2>/dev/null && slow="$slow ionice -c 3"

state() { stat -Lc '%s %.9Y %i' "$1" 2>/dev/null; }
bytes_read() { sed -n 's/^pos:[[:space:]]*//p' "/proc/$hasher/fdinfo/0" 2>/dev/null; }

# $1 number, $2 folder, $3 name, $4 how the file was when it was read
damaged() {
    (
        open_lock 8 store && flock -w 30 8 || exit 1
        [ "$(state "$2/$3")" = "$4" ] && cd "$2" || exit 1
        [ ! -f .manifest ] || { printf '%s\n' "$3" | unvouch && mv -f .manifest.part .manifest; }
    ) && say dropped "$1"
}
# $1 number, $2 folder, $3 name, $4 sha256, $5 size, if it is known
check() {
    [ -f "$2/$3" ] || { say missing "$1"; return; }
    before=$(state "$2/$3")
    size=${before%% *}
    if [ "${5:-$size}" != "$size" ]; then
        say sized "$1" "$size"
        damaged "$1" "$2" "$3" "$before"
        return
    fi
    say at "$1" 0
    $slow sha256sum 2>"$scratch/why" >"$scratch/sum" <"$2/$3" &
    hasher=$!
    ticks=0
    while sleep 0.1 && kill -0 $hasher 2>/dev/null; do
        ticks=$((ticks + 1))
        [ $((ticks % 20)) != 0 ] || say at "$1" "$(bytes_read)"
    done
    if wait $hasher; then
        sum=$(cut -d ' ' -f 1 "$scratch/sum")
        say is "$1" "$sum"
    else
        sum=none
        say unreadable "$1" "$(head -n 1 "$scratch/why" | sed 's/.*: //')"
    fi
    hasher=''
    [ "$sum" = "$4" ] || damaged "$1" "$2" "$3" "$before"
}

say there 0 "$(stat -Lc %s /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf 2>/dev/null)"
say there 1 "$(stat -Lc %s /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00002-of-00002.gguf 2>/dev/null)"
say there 2 "$(stat -Lc %s /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf 2>/dev/null)"
check 0 /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc UD-Q4_K_XL/35b-00001-of-00002.gguf 1111111111111111111111111111111111111111111111111111111111111111 10000000000
check 1 /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc UD-Q4_K_XL/35b-00002-of-00002.gguf 2222222222222222222222222222222222222222222222222222222222222222 20000000000
check 2 /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 gemma.gguf a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 

finish
} </dev/null
