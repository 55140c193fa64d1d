{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What lies in the store of a host and who uses it, in facts. Changes nothing.
# `store/state.py` reads it. One round trip asks for everything.
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

if cd "$real" 2>/dev/null; then
    printf 'free\t%s\n' "$(df -B1 --output=avail . | tail -n 1 | tr -d ' ')"
    # A name with a line break in it would be read as two: such names are told of, and nothing below them.
    find . -name '*[[:cntrl:]]*' -prune -printf 'odd\t%h\n' -o -type l -printf 'link\t%P\n' \
        -o -type d -empty -printf 'empty\t%P\n' -o -type f -printf 'file\t%D:%i\t%n\t%s\t%b\t%P\n'
    find . -name '*[[:cntrl:]]*' -prune -o -type f -name .manifest -printf '%h\n' | while IFS= read -r folder; do
        printf 'manifest\t%s\n' "$folder"
        folder=$folder awk -F '\t' 'NF == 4 && $1 ~ /^[0-9]+$/ && length($1) < 19 {print "vouched\t" $1 "\t" ENVIRON["folder"] "/" $4}' "$folder/.manifest"
    done
    uses | sed 's/^/use\t/'
fi
# What the controller sends arrives elsewhere.
find /var/lib/llamaherd/incoming -maxdepth 1 -name '*[[:cntrl:]]*' -o -type f -printf 'sent\t%D:%i\t%n\t%s\t%b\t%P\n' 2>/dev/null
fetching && printf 'fetch\t%s\n' "$(head -n 1 /run/llamaherd/fetch/progress 2>/dev/null)"

finish
} </dev/null
