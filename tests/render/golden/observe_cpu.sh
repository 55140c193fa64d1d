# Prints what a plan needs to know of its host, one fact a line, fields parted by tabs. Changes nothing.
# `observe.py` reads it. One round trip asks for everything.
LC_ALL=C
export LC_ALL
say() {
    printf '%s' "$1"
    shift
    printf '\t%s' "$@"
    printf '\n'
}

. /etc/os-release
say os "$ID-$VERSION_ID"
say arch "$(uname -m)"
[ -d /run/systemd/system ] && say systemd yes
read -r release </proc/sys/kernel/osrelease
# A container on a WSL host has that kernel too, and is none.
in_wsl=''
case $release in *[Mm]icrosoft*) [ -e /.dockerenv ] || [ -e /run/.containerenv ] || in_wsl=yes ;; esac
[ -z "$in_wsl" ] || say wsl release "$release"
for folder in /var/lib/llamaherd /var/lib; do
    [ -d "$folder" ] && say free "$folder" $(df -B1 --output=avail,source "$folder" | tail -n 1) && break
done
store=/var/lib/llamaherd/models
folder=$store
until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
say store "$folder" $(df -B1 --output=avail,source "$folder" | tail -n 1) $(findmnt -n -o FSTYPE,OPTIONS -T "$folder" | tail -n 1 | cut -d , -f 1)
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" {n = split($2, a, ":"); print "listens\t" a[n]}' | sort -u

# What lies under the system. Asked of /sys and /proc: no driver and no tool of the host's is needed. Processes are what
# costs, so that the shell reads files itself. `root` is where the files are: empty.
root=''
first_of() {
    word=''
    [ ! -r "$1" ] || read -r word <"$1"
}
first_of "$root/proc/sys/kernel/osrelease"
kernel=$word
# What the next boot starts: the link that Debian and Ubuntu keep, or else the newest.
next=''
for link in "$root/boot/vmlinuz" "$root/vmlinuz"; do
    [ -f "$link" ] && next=$(readlink -f "$link") && break
done
if [ -z "$next" ]; then
    set -- "$root"/boot/vmlinuz-*
    [ ! -f "$1" ] || next=$(printf '%s\n' "$@" | sort -V | tail -n 1)
fi
next=${next##*/vmlinuz-}
say machine kernel "$kernel" "${next:-$kernel}"
say machine virtual "$(systemd-detect-virt 2>/dev/null)"
first_of "$root/sys/class/dmi/id/chassis_type"
case $word in 8 | 9 | 10 | 14 | 30 | 31 | 32) say machine laptop ;; esac
for compiler in "$root"/usr/bin/g++-[0-9]*; do
    [ -x "$compiler" ] && say machine gcc "${compiler##*-}"
done
while read -r key size unit; do
    [ "$key" != MemTotal: ] || { say machine memory "$size" && break; }
done <"$root/proc/meminfo"
if [ -d "$root/boot" ]; then
    set -- $(df -B1 --output=avail "$root/boot")
    say machine boot "$2"
fi
set --
for lock in "$root/var/lib/dpkg/lock-frontend" "$root/var/lib/dpkg/lock" "$root/var/lib/apt/lists/lock"; do
    [ ! -f "$lock" ] || set -- "$@" "$lock"
done
if [ "$#" != 0 ]; then
    # The kernel's own list of locks: fuser may not be installed. Another filesystem may have a file of that number, and
    # the process tells which file it has open.
    for pid in $(awk -v inodes="$(stat --printf '%i ' "$@")" 'BEGIN { n = split(inodes, each, " "); while (n) wanted[each[n--]] = 1 }
        $2 != "->" && $5 > 0 { n = split($6, part, ":"); if (part[n] in wanted) print $5 }' "$root/proc/locks"); do
        for file in "$root/proc/$pid/fd"/*; do
            for lock; do
                [ ! "$file" -ef "$lock" ] || { first_of "$root/proc/$pid/comm" && say machine holder "$word ($pid)" && break 3; }
            done
        done
    done
fi
status=$root/var/lib/dpkg/status
# apt-mark would take a second and more: it reads all packages that there are.
grep -qs '^Status: hold ' "$status" && awk '/^Package: / { name = $2 } /^Status: hold / { print "machine\theld\t" name }' "$status"

dpkg-query -W -f 'package\t${Package}\t${db:Status-Status}\n' ca-certificates ccache cmake curl g++ git libssl-dev mmdebstrap ninja-build python3 2>/dev/null
for user in llama llama-build llama-fetch llama-chat; do
    id -u "$user" >/dev/null 2>&1 && say user "$user"
done

# Docker: whose it is, what it can do, and what runs under it. Its socket answers in a tenth of the time of its client.
if docker=$(command -v docker || ls /snap/bin/docker 2>/dev/null); then
    case $(readlink -f "$docker") in /snap/* | /usr/bin/snap) say docker snap ;; esac
    packages=$(dpkg-query -W -f '${db:Status-Status}\tdocker\tpackage\t${Package}\t${Version}\n' podman-docker docker-ce docker.io docker-compose docker-compose-v2 docker-compose-plugin 2>/dev/null | sed -n 's/^installed\t//p')
    printf '%s\n' "$packages" | grep .
    case $packages in
    *compose*) ;;
    *) say docker compose "$(timeout 20 docker compose version --short 2>/dev/null)" ;;
    esac
    info=$(curl -q -fs --max-time 20 --unix-socket /var/run/docker.sock http://docker/info 2>/dev/null || timeout 20 docker info --format '{{json .}}' 2>/dev/null)
    case $info in
    *'"ServerVersion":"'[0-9]*) say docker info "$(printf '%s' "$info" | tr -d '\t\n')" ;;
    *) say docker silent "$( (dockerd --version || docker --version) 2>/dev/null | sed -n 's/^Docker version \([^,]*\),.*/\1/p')" ;;
    esac
    say docker service $(systemctl show -p ActiveState,UnitFileState docker.service 2>/dev/null | sort | cut -d = -f 2)
fi

[ -d /opt/llamaherd/builds ] && [ -d /opt/llamaherd/libexec ] && [ -d /var/lib/llamaherd/models ] && [ -d /var/lib/llamaherd/build ] && [ -d /etc/llamaherd/compose ] && [ -d /var/lib/llamaherd/work ] && [ -d /var/cache/llamaherd/sources ] && [ -d /var/cache/llamaherd/ccache ] && [ -d /var/lib/llamaherd/incoming ] && [ -d /etc/llamaherd/keys ] && say folders yes

# All in two calls: a process each would be most of what a look costs.
set -- /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /etc/systemd/system/llama-chat.service /etc/llamaherd/compose/drafter/compose.yaml /etc/llamaherd/keys/chat
stat --printf 'file\t%n\t%a %u %U %.Y\n' "$@" 2>/dev/null
sha256sum "$@" 2>/dev/null | sed 's/^\([0-9a-f]*\)  /sum\t\1\t/'

[ -d /opt/llamaherd/libexec/fetcher ] && say fetcher "$(cd /opt/llamaherd/libexec/fetcher && {
    find . -type f -printf '%m %u %p\n' | sort
    find . -type f -exec sha256sum {} + | sort
} | sha256sum | cut -d ' ' -f 1)"

if [ -f /opt/llamaherd/builds/llama.cpp-254c2e111fca/manifest.json ] && [ -x /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server ] && [ -x /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-fit-params ]; then
    say build llama.cpp-254c2e111fca done
elif [ -f /var/lib/llamaherd/work/llama.cpp-254c2e111fca/out/manifest.json ]; then
    say build llama.cpp-254c2e111fca built
elif systemctl -q is-active llamaherd-build-llama.cpp-254c2e111fca.service; then
    say build llama.cpp-254c2e111fca building
fi
for source in abababababababababababababababababababababababababababababababab; do
    [ -f /var/cache/llamaherd/sources/"$source" ] && say source "$source"
done

for folder in /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 /var/lib/llamaherd/models/local/0404040404040404; do
    [ -d "$folder" ] || continue
    [ -f "$folder/.manifest" ] && sed "s|^|verified\t$folder\t|" "$folder/.manifest"
    # What somebody else can write to is not the store's, whatever a manifest says of it.
    find "$folder" -type f -user root ! -perm /022 ! -name .manifest -printf "stored\t$folder\t%s\t%T@\t%P\n"
done

# What arrives, and what arrived: a part is full of holes, so that its blocks count (of 512 bytes), not its length.
[ -d "$store/.incoming" ] && find "$store/.incoming" -maxdepth 1 -type f -printf 'incoming\t%f\t%s\t%b\n'
# All revisions that are kept, and the bytes that removing one would free: not those that somebody else has linked too.
[ -d "$store" ] && find "$store" -name .manifest -printf '%h\n' | while read -r folder; do
    say kept "$folder" "$(find "$folder" -type f -links 1 -printf '%s\n' | awk '{ n += $1 } END { printf "%.0f", n }')"
done
case $(systemctl show -P ActiveState llamaherd-fetch.service 2>/dev/null) in
active | activating | deactivating | reloading) say fetch "$(cat /run/llamaherd/fetch.id 2>/dev/null)" ;;
esac

# Units by their files, and by what runs: somebody may have deleted a file under a running server.
# What a server is started with, a line each: what it is, its hash or number, where it is. $1 is what systemd or Docker
# says of it, $2 the file of its key or -, and then come the folders of its models.
started_with() (
    printf '%s\n' "$1" | sed -n 's/^InvocationID=/run\t/p'
    # A unit is its file and its drop-ins.
    printf '%s\n' "$1" | sed -n 's/^FragmentPath=//p; s/^DropInPaths=//p' | sed 's/ \//\n\//g' | grep . |
        tr '\n' '\0' | xargs -0 -r sha256sum | sed 's/^\([0-9a-f]*\)  /file\t\1\t/'
    # With a secret of this host: who reads the hash cannot try keys.
    secret=/var/lib/llamaherd/started/.secret
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

changed() {
    sed "s/^/serving\t$1\tchanged\t/"
}
units=$({
    cd /etc/systemd/system && ls -d llama-*.service
    systemctl list-units --all --plain --no-legend 'llama-*.service' | cut -d ' ' -f 1
} 2>/dev/null | sort -u)
for unit in $units; do
    # As NAME=value lines, in one call: each call costs as much as all the reading around it.
    show=$(systemctl show -p MainPID,ActiveState,UnitFileState,NeedDaemonReload,InvocationID,FragmentPath,DropInPaths "$unit")
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    pid=$(of MainPID)
    spec='' port=''
    if [ "$pid" != 0 ]; then
        spec=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^LLAMAHERD_SPEC=//p')
        port=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | sed -n 's/.* --port \([0-9]*\).*/\1/p')
    fi
    [ -n "$spec" ] || grep -qs '^# Written by llamaherd' "/etc/systemd/system/$unit" || continue
    name=${unit%.service}
    say unit "$name" "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$(of InvocationID)" "$spec" "$port"
    [ "$pid" != 0 ] || continue
    case $name in
    llama-chat) started_with "$show" /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 | changed_since /run/llamaherd/started/$name | changed $name ;;
    esac
done

# Also where no card is declared any more: what was held is given back.
if [ -f /etc/systemd/system/llamaherd-gpu-power.service ]; then
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload llamaherd-gpu-power.service)
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    say power "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)"
fi
for folder in /etc/llamaherd/compose/*; do
    [ -d "$folder" ] && say project "${folder##*/}"
done
if command -v docker >/dev/null; then
    containers=$(docker ps -aq --no-trunc --filter label=llamaherd.spec 2>/dev/null | xargs -r docker inspect --format \
        'container	{{.Name}}	{{.State.Status}}	{{with .State.Health}}{{.Status}}{{end}}	{{.Id}}	{{index .Config.Labels "llamaherd.spec"}}	{{with index .Config.Labels "llamaherd.port"}}{{.}}{{else}}{{range .HostConfig.PortBindings}}{{(index . 0).HostPort}}{{end}}{{end}}' 2>/dev/null)
    printf '%s\n' "$containers" | grep .
    id=$(printf '%s\n' "$containers" | awk -F '\t' '$2 == "/llama-drafter" { print $5 }')
    [ -z "$id" ] || started_with "InvocationID=$id" - /var/lib/llamaherd/models/local/0404040404040404 | changed_since /var/lib/llamaherd/started/llama-drafter | changed llama-drafter
    docker image inspect --format '{{range .RepoTags}}image	{{.}}{{println}}{{end}}' llamaherd/engine:llama.cpp-254c2e111fca-a371b6 2>/dev/null | grep .
fi
exit 0
