{
LC_ALL=C
export LC_ALL
# A fact: its kind, and its fields. None holds a tab or a line break. It is written at once: others may be said meanwhile.
say() {
    fact=$1
    shift
    for field; do
        fact="$fact	$field"
    done
    printf '%s\n' "$fact"
}
# A text: what it is, and of what; then its lines, which may hold anything.
section() {
    printf '@ %s\t%s\n' "$1" "$2"
}
lines() {
    awk '{print "\t" $0}'
}
# After this nothing is said.
finish() {
    echo '@ end'
    exit 0
}
# What files of the login shell print comes before this, perhaps in the same line.
printf '\n@ begin\n'

# Removes from the store what is unused, if it still is, and says so in facts. What is left by a kill in the middle has neither its name nor a
# manifest, and the next run removes it.
# Who uses the store. `uses` prints a line "kind TAB name TAB path" for every path in it that is named, open or mapped.
# No process of this script has such a path among its arguments while it looks: it would find itself.
store=/var/lib/llamaherd/models
real=$(readlink -f "$store")
export store real
host_root=''
tab=$(printf '\t')

# $1 kind, $2 name: put before each line
label() { kind=$1 name=$2 awk '{print ENVIRON["kind"] "\t" ENVIRON["name"] "\t" $0}'; }

# What going back would need, a line "kind TAB name TAB text" for each of its texts: of the newest releases that came out
# well, and of what is kept of servers to be put back. `label` puts kind and name before each line.
needed() {
    for number in $(ls /var/lib/llamaherd/releases 2>/dev/null | sed -n 's/^\([0-9]\{1,9\}\)\.json$/\1/p' | sort -rn); do
        grep -qF '"failed":[]' /var/lib/llamaherd/releases/"$number.json" && echo "$number"
    done | head -n 3 | while read -r number; do
        gunzip -c </var/lib/llamaherd/releases/"$number.plan" 2>/dev/null | head -c 8388608 | tr '"' '\n' | label release "$number"
    done
    for folder in /var/lib/llamaherd/kept/*/last /var/lib/llamaherd/kept/*/before; do
        name=${folder%/*}
        [ ! -f "$folder/file" ] || label kept "${name##*/}" <"$folder/file"
    done
}

# Lines of label become a line for every path of the store in their text. What follows the path stays: it may have blanks.
paths() {
    awk -F '\t' '{
        text = $0
        sub(/^[^\t]*\t[^\t]*\t/, "", text)
        split(ENVIRON["store"] "\n" ENVIRON["real"], roots, "\n")
        for (r = 1; r <= 2; r++) {
            roots[r + 2] = roots[r]
            gsub(/[][\\.^$*+?(){}|]/, "\\\\&", roots[r + 2])
            rest = text
            while (at = index(rest, roots[r] "/")) {
                rest = substr(rest, at + length(roots[r]))
                print $1 "\t" $2 "\t" ENVIRON["store"] rest
            }
            # What is given all of the store may use anything in it.
            if (ENVIRON["whole"] && (text " ") ~ ("(^|[^A-Za-z0-9._/-])" roots[r + 2] "/?[^A-Za-z0-9._/-]"))
                print $1 "\t" $2 "\t" ENVIRON["store"]
        }
    }'
}

# $1 pid: whose it is, as "kind TAB name"
owner() {
    unit=$(grep -os 'llama[A-Za-z0-9@._-]*\.service' "/proc/$1/cgroup" | tail -n 1)
    id=$(grep -osE '[0-9a-f]{64}' "/proc/$1/cgroup" | tail -n 1)
    if [ "$unit" ]; then
        printf 'unit\t%s\n' "$unit"
    elif [ "$id" ] && container=$(docker inspect --type container --format '{{slice .Name 1}}' "$id" 2>/dev/null); then
        printf 'container\t%s\n' "$container"
    else
        printf 'process\t%s %s\n' "$1" "$(tr -d '\n\t' <"/proc/$1/comm" 2>/dev/null)"
    fi
}

defined() {
    for file in /etc/systemd/system/llama-*.service; do
        [ -f "$file" ] && label unit "${file##*/}" <"$file"
    done
    for folder in /etc/llamaherd/compose/*; do
        [ -f "$folder/compose.yaml" ] && label container "llama-${folder##*/}" <"$folder/compose.yaml"
    done
    # Of a container that was given a folder, what it is told is a path of the host's, too.
    docker ps -aq --no-trunc 2>/dev/null | xargs -r docker inspect --type container --format \
        '{{$c := .}}{{$name := slice .Name 1}}{{range .Mounts}}{{$from := .Source}}{{$to := .Destination}}container	{{$name}}	{{$from}}{{println}}{{range $c.Args}}container	{{$name}}	{{join (split . $to) $from}}{{println}}{{end}}{{range $c.Config.Env}}container	{{$name}}	{{join (split . $to) $from}}{{println}}{{end}}{{end}}' 2>/dev/null
}

homes() {
    {
        ls -d "$host_root"/home/* "$host_root"/root
        [ "$host_root" ] || getent passwd | awk -F : '$3 >= 1000 && $3 < 65000 {print $6}'
    } 2>/dev/null | sort -u
}
# Files by which people start things, ended by NUL: units of the system and of users, Quadlets, scripts, Compose files.
starters() {
    for top in etc usr/local/bin usr/local/sbin usr/local/lib/systemd usr/lib/systemd lib/systemd run/systemd var/spool/cron; do
        find "$host_root/$top/" -path "$host_root/etc/llamaherd" -prune -o -name 'llamaherd-*' -prune -o \
            -type f -size -1024k -print0 2>/dev/null
    done
    homes | while IFS= read -r home; do
        find "$home/.config/systemd/" "$home/.config/containers/" "$home/.local/share/systemd/" -type f -print0 2>/dev/null
        by_name "$home/" 4
        containers "$home/.local/share/containers/"
    done
    containers "$host_root/var/lib/containers/"
    by_name "$host_root/opt/" 5
    by_name "$host_root/srv/" 5
}
# What Podman was told of the containers that it keeps in a folder: of root's, and of each user's.
containers() {
    find "$1" -maxdepth 5 -path '*-containers/*/userdata/config.json' -type f -size -1024k -print0 2>/dev/null
}
# $1 folder, $2 how deep
by_name() {
    find "$1" -maxdepth "$2" -type f -size -1024k \( -name '*.service' -o -name '*.container' -o -name '*compose*.y*ml' \
        -o -name '*.sh' -o -name '*.env' -o -name .env \) -print0 2>/dev/null
}
# What somebody else has set up, be it that it does not run now.
written() {
    names=$(printf '%s\n' "$store" "$real" && homes | while IFS= read -r home; do
        case $store in "$home"/*) printf '%s\n' "${store#"$home"/}" ;; esac
    done)
    starters | xargs -0 grep -lsIF -e "$names" 2>/dev/null | sort -u | while IFS= read -r file; do
        home=$(homes | while IFS= read -r each; do case $file in "$each"/*) printf '%s\n' "$each" ;; esac; done | head -n 1)
        case $file in
        *.service.d/*.conf) kind=unit name=${file%.d/*} name=${name##*/} whole=yes ;;
        */userdata/config.json) kind=container name=$(sed -n 's/.*"hostname": *"\([^"]*\)".*/\1/p' "$file" | head -n 1) name=${name:-${file#"$host_root"}} whole=yes ;;
        *.service | *.container) kind=unit name=${file##*/} whole=yes ;;
        *compose*.y*ml | *.sh) kind=file name=${file#"$host_root"} whole=yes ;;
        *) kind=file name=${file#"$host_root"} whole='' ;;
        esac
        sed "s|%h/|$home/|g; s|[$]{HOME}/|$home/|g; s|[$]HOME/|$home/|g; s|~/|$home/|g" "$file" | label $kind "$name" |
            whole=$whole paths
    done
}
# Units that name a link by which one comes into the store.
linked() {
    for file in /etc/systemd/system/*.service "$host_root"/home/*/.config/systemd/user/*.service; do
        [ -f "$file" ] || continue
        grep -oE '/[^][:space:]"'\''=:,;[]+' "$file" | sort -u | xargs -r -d '\n' readlink -m -- | grep -F "$real/" |
            label unit "${file##*/}"
    done
}
named() {
    for cmdline in $(printf '%s\n' "$store/" "$real/" | grep -lsaFf - /proc/[0-9]*/cmdline); do
        pid=${cmdline#/proc/}
        pid=${pid%/cmdline}
        whose=$(owner "$pid")
        tr '\0' '\n' <"$cmdline" 2>/dev/null | label "${whose%%	*}" "${whose#*	}"
    done
}
# By number and name: in a container the same file may have another path.
held() {
    {
        find "$real/" -type f -printf 'file\t%i\t%f\t%P\n' 2>/dev/null
        find /proc/[0-9]*/fd -maxdepth 1 -type l -printf 'open\t%h\t%l\n' 2>/dev/null
        grep -Hs ' /' /proc/[0-9]*/maps
    } | awk -F '\t' '
        $1 == "file" { lies[$2 "\t" $3] = $4; next }
        $1 == "open" {
            split($2, part, "/")
            if (index($3, ENVIRON["real"] "/") == 1)
                print part[3] "\t" substr($3, length(ENVIRON["real"]) + 2)
            next
        }
        {
            path = substr($0, index($0, " /") + 1)
            sub(/ \(deleted\)$/, "", path)
            split($0, word, / +/)
            split(word[1], part, "/")
            name = path
            sub(/.*\//, "", name)
            if ((word[5] "\t" name) in lies)
                print part[3] "\t" lies[word[5] "\t" name]
        }' | sort -u | while IFS='	' read -r pid path; do
        printf '%s\t%s\n' "$(owner "$pid")" "$store/$path"
    done
}
uses() {
    {
        { defined; named; linked; needed; } | paths
        written
        held
    } | sort -u
}

# Whether models are being fetched: what the store lacks or has too much of is about to change.
fetching() {
    case $(systemctl show -P ActiveState llamaherd-fetch.service 2>/dev/null) in
    active | activating | deactivating | reloading) return 0 ;;
    esac
    return 1
}
# In a model's folder, names on stdin: what is vouched for, without these. What is read meanwhile is the old list or the new.
unvouch() {
    awk -F '\t' 'NR == FNR {gone[$0]; next} !($4 in gone)' - .manifest >.manifest.part &&
        chmod 0644 .manifest.part && sync .manifest.part
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
