{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What a plan needs to know of its host, in facts: files, and then what each role asks. Changes nothing.
# `llamaherd/pipeline/inspect.py` reads it. One round trip asks for everything.
# What did not respond is not the same as what is not there: the state of the host is unknown then. A command whose output
# is captured reports that on descriptor 3.
unread() {
    say unread "$1" >&3
}
systemctl_within='timeout 10'
# systemd responds to no client for a moment while it re-executes, and drops the connections of clients that wait. What
# fails for that reason alone is tried again, for 2 s; a restart as a start. `systemctl_within` limits one call.
systemctl() (
    # A host that another init has booted has no systemd that could respond.
    if [ ! -d /run/systemd/system ]; then command systemctl "$@"; exit; fi
    for pause in 0.2 0.3 0.5 1 ''; do
        failed=0
        { complaint=$(${systemctl_within:-command} systemctl "$@" 2>&1 >&4 4>&-) || failed=$?; } 4>&1
        case $failed:$complaint in
        0:* | 124:*) break ;;
        *'onnect to '*bus* | *'Connection reset by peer'* | *'Connection refused'* | *'Connection timed out'* | \
            *'Transport endpoint is not connected'* | *'onnection terminated'* | *disconnected*) failed=75 ;;
        *) break ;;
        esac
        [ "$pause" ] || break
        sleep "$pause"
        [ "$1" != restart ] || { shift && set -- start "$@"; }
    done
    [ -z "$complaint" ] || printf '%s\n' "$complaint" >&2
    case $failed in 75 | 124) unread systemd ;; esac
    exit $failed
)
# Docker's client, limited. It fails with 75 or 124 where Docker runs and does not respond, also not two seconds later.
query_docker() (
    for pause in 0.5 0.5 1 ''; do
        failed=0
        { complaint=$(timeout 10 docker "$@" 2>&1 >&4 4>&-) || failed=$?; } 4>&1
        case $complaint in
        *'annot connect to the Docker daemon'* | *'error during connect'*) ;;
        *) break ;;
        esac
        docker_runs || break
        failed=75
        [ "$pause" ] || break
        sleep "$pause"
    done
    [ -z "$complaint" ] || printf '%s\n' "$complaint" >&2
    exit $failed
)
# One that is stopped or fails to start has no containers that run, and a run may start it.
docker_runs() {
    case $(systemctl show -P ActiveState docker.service 2>/dev/null) in active | reloading) return 0 ;; esac
    return 1
}
exec 3>&1
# Where systemd hangs, each call of a role would wait as long as this one.
[ ! -d /run/systemd/system ] || systemctl show -P Version >/dev/null 2>&1 || [ $? -lt 75 ] || finish
{
exec 3>&1
# All in two calls: a process each would be most of what a look costs.
set -- /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/gpu-gate /opt/llamaherd/libexec/gpu-check /etc/systemd/system/docker.service.d/llamaherd-cards.conf /etc/apt/preferences.d/llamaherd-cuda /etc/apt/preferences.d/llamaherd-container-toolkit /etc/llamaherd/compose/boxed/compose.yaml /etc/systemd/system/llama-reasoner.service /etc/llamaherd/compose/small/compose.yaml /etc/systemd/system/llama-worker.service /etc/apt/keyrings/llamaherd-nvidia.asc /etc/apt/sources.list.d/llamaherd-nvidia.sources /etc/apt/keyrings/llamaherd-nvidia-container-toolkit.asc /etc/apt/sources.list.d/llamaherd-nvidia-container-toolkit.sources
stat --printf 'file\t%n\t%a %u %U %.Y\n' "$@" 2>/dev/null
sha256sum "$@" 2>/dev/null | sed 's/^\([0-9a-f]*\)  /sum\t\1\t/'

. /etc/os-release
say os "$ID-$VERSION_ID"
arch=''
[ ! -r /proc/sys/kernel/arch ] || read -r arch </proc/sys/kernel/arch
say arch "${arch:-$(uname -m)}"
[ -d /run/systemd/system ] && say systemd yes
read -r release </proc/sys/kernel/osrelease
# A container on a WSL host has that kernel too, and is none.
in_wsl=''
case $release in *[Mm]icrosoft*) [ -e /.dockerenv ] || [ -e /run/.containerenv ] || in_wsl=yes ;; esac
[ -z "$in_wsl" ] || say wsl release "$release"
for folder in /var/lib/llamaherd /var/lib; do
    [ -d "$folder" ] || continue
    # Below a line of headings, which are two words.
    set -- $(df -B1 --output=avail,source "$folder")
    say free "$folder" "$3" "$4"
    break
done
ip -o addr show 2>/dev/null | awk '
    FILENAME !~ /^\/proc/ {print "address\t" $4; next}
    $4 == "0A" {n = split($2, a, ":"); if (!(a[n] in had)) print "listens\t" a[n]; had[a[n]]}' - /proc/net/tcp /proc/net/tcp6 2>/dev/null


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
set -- "$root"/sys/bus/pci/devices/*
[ ! -e "$1" ] || say machine bus "$#"
# lspci knows names. Without it there are the same addresses and ids in /sys; and where a container hides that, there is
# what a driver shows.
cards=$(lspci -D -nn -d 10de: 2>/dev/null | awk '/^[0-9a-f:.]+ (VGA compatible|3D|Display) controller.*: NVIDIA/ {
    address = split($1, part, ":") == 2 ? "0000:" $1 : $1
    id = match($0, /\[10de:[0-9a-f][0-9a-f][0-9a-f][0-9a-f]\]/) ? substr($0, RSTART + 6, 4) : "-"
    sub(/^[^ ]* [^:]*: /, ""); sub(/^NVIDIA Corporation */, ""); sub(/ *\(rev .*/, ""); sub(/ *\[10de:....\].*/, "")
    gsub(/\t/, " ")
    print address "\t" id "\t" ($0 == "" ? "-" : $0)
}')
[ "$cards" ] || cards=$(for device in "$@"; do
    first_of "$device/vendor"
    [ "$word" = 0x10de ] || continue
    first_of "$device/class"
    case $word in 0x03*) ;; *) continue ;; esac
    first_of "$device/device"
    printf '%s\t%s\t-\n' "${device##*/}" "${word#0x}"
done)
if [ -z "$cards" ] && command -v nvidia-smi >/dev/null; then
    cards=$(timeout 10 nvidia-smi --query-gpu=pci.bus_id,name --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9A-Fa-f:.]*\), /\1\t-\t/p')
    [ "$cards" ] || cards=$(timeout 10 nvidia-smi -L 2>/dev/null | sed -n 's/^GPU [0-9]*: \(.*\) (UUID: .*/-\t-\t\1/p')
fi
printf '%s\n' "$cards" | while IFS='	' read -r address id name; do
    [ "$address" ] || continue
    driver=$(readlink "$root/sys/bus/pci/devices/$address/driver")
    say machine card "$address" "$id" "$name" "${driver##*/}"
done
variable=$root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
if [ -f "$variable" ]; then
    # Four bytes of attributes come first.
    case $(od -An -tu1 -j4 -N1 "$variable") in *1*) say machine secure-boot on ;; *) say machine secure-boot off ;; esac
fi
# The key that dkms signs modules with: Ubuntu's place, then dkms' own.
for key in "$root/var/lib/shim-signed/mok/MOK.der" "$root/var/lib/dkms/mok.pub"; do
    [ -f "$key" ] && command -v mokutil >/dev/null || continue
    case $(mokutil --test-key "$key" 2>/dev/null) in *"already enrolled"*) say machine mok enrolled ;; *) say machine mok new ;; esac
    break
done
[ ! -d "$root/sys/module/nouveau" ] || say machine nouveau
for tree in "$root"/lib/modules/*/build; do
    [ -d "$tree/" ] || continue
    tree=${tree%/build}
    say machine headers "${tree##*/}"
done
for compiler in "$root"/usr/bin/g++-[0-9]*; do
    [ -x "$compiler" ] && say machine gcc "${compiler##*-}"
done
while read -r key size unit; do
    [ "$key" != MemTotal: ] || { say machine memory "$size" && break; }
done <"$root/proc/meminfo"
[ ! -r "$root/proc/cpuinfo" ] || while read -r key flags; do
    [ "$key" = flags ] || continue
    case "$flags " in *' amx_int8 '*) say machine amx ;; esac
    break
done <"$root/proc/cpuinfo"
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

for list in $(grep -lsF https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources); do
    [ "$list" = /etc/apt/sources.list.d/llamaherd-nvidia.sources ] || say repository nvidia "$list"
done
for list in $(grep -lsF 'https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH)' /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources); do
    [ "$list" = /etc/apt/sources.list.d/llamaherd-nvidia-container-toolkit.sources ] || say repository nvidia-container-toolkit "$list"
done
dpkg-query -W -f 'package\t${Package}\t${db:Status-Status}\n' ca-certificates ccache cmake curl g++ git libssl-dev mmdebstrap ninja-build python3 2>/dev/null
while IFS=: read -r user secret number group name home shell; do
    # A person's account is not ours to judge.
    case $number in
    '') ;;
    ????*) say user "$user" '' '' ;;
    *) say user "$user" "$shell" "$(id -nG "$user")" ;;
    esac
done <<END
$(getent passwd llama llama-build llama-fetch llama-reasoner llama-worker)
END
# What an account of ours must not have: a number that is another's, who may then do what it may, and a password.
shadow=/etc/shadow
[ -r "$shadow" ] || shadow=/dev/null
getent passwd | ours=' llama llama-build llama-fetch llama-reasoner llama-worker ' awk -F : '
    FILENAME ~ /^\// { if (index(ENVIRON["ours"], " " $1 " ") && $2 !~ /^[!*]/) print "password\t" $1; next }
    { names[$3] = names[$3] " " $1 }
    index(ENVIRON["ours"], " " $1 " ") { number[$1] = $3 }
    END { for (user in number) { n = split(names[number[user]], name, " "); for (; n; n--) if (name[n] != user) print "twin\t" user "\t" name[n] } }' - "$shadow" 2>/dev/null

stat --printf 'folder\t%n\t%a\t%U\n' /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /var/cache/llamaherd/sources /var/cache/llamaherd/ccache /etc/llamaherd/keys /var/lib/llamaherd/incoming 2>/dev/null

[ -d /opt/llamaherd/libexec/fetcher ] && sum=$(cd /opt/llamaherd/libexec/fetcher && {
    find . -type f -printf '%m %u %p\n' | sort
    find . -type f -exec sha256sum {} + | sort
} | sha256sum) && say fetcher "${sum%% *}"


if command -v nvidia-smi >/dev/null; then
    # A driver that hangs must not hang this.
    cards=$(timeout 12 nvidia-smi --format=csv,noheader,nounits --query-gpu=uuid,pci.bus_id,persistence_mode,power.limit,power.default_limit,power.min_limit,power.max_limit,clocks.current.graphics,fan.speed,name 2>&1)
    printf '%s\n' "$cards" | awk -F ', ' '/^GPU-/ && NF >= 10 {print "card\t" $0}' | grep . ||
        say driver "$(printf '%s\n' "$cards" | grep . | head -n 1 | tr '\t' ' ')"
else
    say driver "there is no nvidia-smi"
fi


# The CUDA toolkit that is named, whoever brought it: what its compiler says of itself.
# Where there is none: the room for it, and what an earlier run has brought of it.
if [ -x /usr/local/cuda-13.0/bin/nvcc ]; then
    say toolkit "$(timeout 10 /usr/local/cuda-13.0/bin/nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
else
    begun=$(du -scB1 /usr/local/cuda-13.0 /var/cache/apt/archives/*-13-0_*.deb 2>/dev/null | tail -n 1 | cut -f 1)
    say room /usr/local $(df -B1 --output=avail,source /usr/local /usr 2>/dev/null | sed -n 2p) "${begun:-0}"
fi


[ -e /run/llamaherd/undo/docker ] && say docker armed
# Docker: whose it is, what it can do, and what runs under it. Its socket answers in a tenth of the time of its client.
# Also where there is none yet: a mask stays when the program comes.
systemctl show -p Id,LoadState,ActiveState,UnitFileState,Requires,Wants docker.service docker.socket containerd.service 2>/dev/null | awk '
    BEGIN { RS = ""; FS = "\n" }
    {
        for (n = 1; n <= NF; n++) { at = index($n, "="); of[substr($n, 1, at - 1)] = substr($n, at + 1) }
        print "docker\tunit\t" of["Id"] "\t" of["LoadState"] "\t" of["ActiveState"] "\t" of["UnitFileState"] "\t" of["Requires"] " " of["Wants"]
        split("", of)
    }'
if docker=$(command -v docker || ls /snap/bin/docker 2>/dev/null); then
    case $(readlink -f "$docker") in /snap/* | /usr/bin/snap) say docker snap ;; esac
    packages=$(dpkg-query -W -f '${db:Status-Status}\tdocker\tpackage\t${Package}\t${Version}\n' podman-docker docker-ce docker.io docker-compose docker-compose-v2 docker-compose-plugin 2>/dev/null | sed -n 's/^installed\t//p')
    [ -z "$packages" ] || printf '%s\n' "$packages"
    case $packages in
    *compose*) ;;
    *) say docker compose "$(timeout 20 docker compose version --short 2>/dev/null)" ;;
    esac
    info=$(curl -q -fs --max-time 10 --unix-socket /var/run/docker.sock http://docker/info 2>/dev/null) || case $? in
    28) ! docker_runs || unread Docker ;;
    *) info=$(query_docker info --format '{{json .}}' 2>/dev/null) || [ $? -lt 75 ] || unread Docker ;;
    esac
    case $info in
    *'"ServerVersion":"'[0-9]*) say docker info "$(printf '%s' "$info" | tr -d '\t\n')" ;;
    *) say docker silent "$( (dockerd --version || docker --version) 2>/dev/null | sed -n 's/^Docker version \([^,]*\),.*/\1/p')" ;;
    esac
fi
[ -z "${info:-}" ] || query_docker ps --format 'docker	running	{{.Names}}' 2>/dev/null
if [ -f /etc/docker/daemon.json ]; then
    say docker settings "$(stat -L -c %a /etc/docker/daemon.json)" "$(base64 -w 0 /etc/docker/daemon.json)"
fi
dpkg-query -W -f 'docker\ttoolkit\t${Package}\t${Version}\t${db:Status-Status}\n' nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1 2>/dev/null
for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
    enabled=$(systemctl is-enabled $unit 2>/dev/null)
    [ "$enabled" ] && [ "$enabled" != not-found ] && say docker refresh $unit "$enabled"
done
timeout 20 nvidia-ctk cdi list 2>/dev/null | sed -n 's/^\(nvidia\.com\/gpu=.*\)$/docker\tdevice\t\1/p'


# What a finished build is known by without reading all of it: who replaces a program changes something of this.
stamp() {
    (cd "$1" && stat -c '%n %a %u' . bin && stat -c '%n %a %u %s %.Y %.Z %i' manifest.json bin/*) 2>/dev/null
}
# Whether its programs are those that its manifest has the hashes of.
intact() {
    (cd "$1/bin" && sed -n 's/.*"sha256": {\(.*\)}}.*/\1/p' ../manifest.json | tr ',' '\n' |
        sed -n 's/^ *"\(.*\)": "\([0-9a-f]*\)" *$/\2  \1/p' | sha256sum -c --strict --status) 2>/dev/null
}
home=/opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7
if [ -f $home/manifest.json ] && [ -f $home/bin/llama-server ]; then
    if stamp $home | cmp -s - $home/.stamp; then
        say build ik_llama.cpp-e27c3d4e93b7 done
    elif intact $home; then
        say build ik_llama.cpp-e27c3d4e93b7 intact
    else
        say build ik_llama.cpp-e27c3d4e93b7 damaged
    fi
elif [ -f /var/lib/llamaherd/work/ik_llama.cpp-e27c3d4e93b7/out/manifest.json ]; then
    say build ik_llama.cpp-e27c3d4e93b7 built
elif systemctl -q is-active llamaherd-build-ik_llama.cpp-e27c3d4e93b7.service; then
    say build ik_llama.cpp-e27c3d4e93b7 building
fi
home=/opt/llamaherd/builds/llama.cpp-1e5a4c321023
if [ -f $home/manifest.json ] && [ -f $home/bin/llama-server ] && [ -f $home/bin/llama-fit-params ]; then
    if stamp $home | cmp -s - $home/.stamp; then
        say build llama.cpp-1e5a4c321023 done
    elif intact $home; then
        say build llama.cpp-1e5a4c321023 intact
    else
        say build llama.cpp-1e5a4c321023 damaged
    fi
elif [ -f /var/lib/llamaherd/work/llama.cpp-1e5a4c321023/out/manifest.json ]; then
    say build llama.cpp-1e5a4c321023 built
elif systemctl -q is-active llamaherd-build-llama.cpp-1e5a4c321023.service; then
    say build llama.cpp-1e5a4c321023 building
fi
[ -f /opt/llamaherd/builds/llama.cpp-1e5a4c321023/flags ] && say flags llama.cpp-1e5a4c321023 "$(head -c 64000 /opt/llamaherd/builds/llama.cpp-1e5a4c321023/flags | base64 -w 0)"
for source in abababababababababababababababababababababababababababababababab; do
    [ -f /var/cache/llamaherd/sources/"$source" ] && say source "$source"
done


store=/var/lib/llamaherd/models
folder=$store
until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
# Below a line of headings, which are two words; and of mounts over each other, the last counts.
set -- $(df -B1 --output=avail,source "$folder")
mounts=$(findmnt -n -o FSTYPE,OPTIONS -T "$folder")
mount=${mounts##*
}
say store "$folder" "$3" "$4" ${mount%%,*}
set --
for folder in /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5; do
    [ -d "$folder" ] || continue
    set -- "$@" "$folder"
    [ ! -f "$folder/.manifest" ] || while IFS= read -r line || [ "$line" ]; do
        printf 'verified\t%s\t%s\n' "$folder" "$line"
    done <"$folder/.manifest"
done
# What somebody else can write to is not the store's, whatever a manifest says of it.
[ "$#" = 0 ] || find "$@" -type f -user root ! -perm /022 ! -name .manifest -printf 'stored\t%H\t%s\t%T@\t%P\n'

# What arrives, and what arrived: a part is full of holes, so that its blocks count (of 512 bytes), not its length.
[ -d "$store/.incoming" ] && find "$store/.incoming" -maxdepth 1 -type f -printf 'incoming\t%f\t%s\t%b\n'
# All revisions that are kept, and the bytes that removing one would free: not those that somebody else has linked too.
[ -d "$store" ] && find "$store" \( -name .manifest -printf 'kept\t%h\n' \) , \( -type f -links 1 -printf '%s\t%h\n' \) | awk -F '\t' '
    $1 == "kept" { kept[$2] = 0; next }
    { size[$2] += $1 }
    END {
        for (folder in size)
            for (above = folder; above ~ /\//; sub(/\/[^\/]*$/, "", above))
                if (above in kept) kept[above] += size[folder]
        for (folder in kept) printf "kept\t%s\t%.0f\n", folder, kept[folder]
    }'
# A fetch says which it is before it begins.
[ -f /run/llamaherd/fetch.id ] && case $(systemctl show -P ActiveState llamaherd-fetch.service 2>/dev/null) in
active | activating | deactivating | reloading) say fetch "$(cat /run/llamaherd/fetch.id 2>/dev/null)" ;;
esac


# Also where no card is declared any more: what was held is given back.
if [ -f /etc/systemd/system/llamaherd-gpu-power.service ]; then
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload llamaherd-gpu-power.service)
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    say power "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)"
fi

finish
} | {
exec 3>&1
# What waits for others has a processor of its own meanwhile. It is said first, so that no line comes between another's;
# and the end is the other side's to say: without either, there is none.
{
# What servers read, by somebody who is nobody in particular: each server is a user of its own.
set -- /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin/llama-server /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-fit-params
for folder in /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5; do
    [ ! -d "$folder" ] || set -- "$@" "$folder"
done
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '
    for path; do
        shift
        if [ -r "$path" ] && { [ -f "$path" ] || [ -x "$path" ]; }; then
            [ -f "$path" ] || set -- "$@" "$path"
        else
            printf "%s\n" "$path"
        fi
    done
    # What belongs to somebody else is no file of the store, and comes anew.
    [ "$#" = 0 ] || exec find "$@" ! -name .manifest ! -readable \( -type d -o -type f -user 0 \)' sh "$@" 2>/dev/null | while read -r path; do [ ! -e "$path" ] || say closed "$path"; done

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

<<< templates/serve/started-variables.sh: # Names of the variables that a process has otherwise than it should, on one line. $1 is the process, $2 an expression for
>>>     [ -z "$others" ] || printf '%s\n' "$others" | sort -u | tr '\n' ' ' | sed 's/ $//'

# What is known of a server beside its state: lines from stdin.
told() {
    sed "s/^/serving\t$1\t/"
}
# Variables that a process has otherwise: their names, and of these what systemd gives all units. As other_variables.
variables() {
    names=$(other_variables "$1" "$2")
    [ -z "$names" ] || printf 'variables\t%s\t%s\n' "$names" "$(systemctl show-environment 2>/dev/null | sed 's/=.*//' | grep -Fx "$(printf '%s\n' $names)" | tr '\n' ' ')"
}
# What others wrote for a unit, by what is on disk: systemd reads it before the next start. $1 is the unit, and then come
# the folders of drop-ins that it shares with others; of those, what decides what is run as whom. Other keys loosen walls,
# as containers must.
foreign() {
    unit=$1
    shift
    for root in /etc/systemd/system.control /run/systemd/system.control /run/systemd/transient /run/systemd/generator.early; do
        [ ! -e "$root/$unit" ] && [ ! -L "$root/$unit" ] || printf 'foreign\t%s\n' "$root/$unit"
    done
    for root in /etc/systemd/system.control /run/systemd/system.control /run/systemd/transient /run/systemd/generator.early /etc/systemd/system /etc/systemd/system.attached /run/systemd/system /run/systemd/system.attached /run/systemd/generator /usr/local/lib/systemd/system /usr/lib/systemd/system /run/systemd/generator.late; do
        for file in "$root/$unit.d"/*.conf; do
            [ ! -f "$file" ] || printf 'foreign\t%s\n' "$file"
        done
        for shared; do
            for file in "$root/$shared"/*.conf; do
                [ ! -f "$file" ] || file=$file deciding='^[ 	]*(Exec[A-Za-z]*|User|Group|DynamicUser|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment|UnsetEnvironment|RootDirectory|RootImage)[ 	]*=' awk -F = '
                    $0 ~ ENVIRON["deciding"] { gsub(/[ \t]/, "", $1); if (!($1 in had)) keys = keys " " $1; had[$1] }
                    END { if (keys) print "shared\t" ENVIRON["file"] "\t" substr(keys, 2) }' "$file"
            done
        done
    done
}
# What a unit is started with, without what others wrote for it: that is set aside.
ours_of() {
    { foreign "$1" && cat; } | awk -F '\t' '$1 == "foreign" { theirs[$2]; next } !($1 == "file" && $3 in theirs)'
}
# A process as it is: its arguments, whether it is the program $2 that lies there now, whether it is user $3, and whose
# groups it is in.
process() {
    printf 'argv\t%s\n' "$(sha256sum <"/proc/$1/cmdline" | cut -d ' ' -f 1)"
    [ "/proc/$1/exe" -ef "$2" ] || printf 'replaced\t%s\n' "$2"
    # What it was given when it started stays its own.
    awk -v user="$(id -u "$3" 2>/dev/null)" '$1 == "Uid:" && user != "" && $2 != user { print "user\t" $2 } $1 == "Gid:" { own = $2 } $1 == "Groups:" { for (n = 2; n <= NF; n++) if ($n != own) others = others " " $n }
        END { if (others) print "groups\t" substr(others, 2) }' "/proc/$1/status"
}
# What a process was given as --$2.
argument() {
    sed -z -n "/^--$2\$/ { n; p; q }" "/proc/$1/cmdline" 2>/dev/null | tr -d '\0'
}
# Where a server is asked that listens at address $1 and port $2, as it was told when it started.
url_of() {
    case $1 in
    '' | 0.0.0.0) echo "http://127.0.0.1:$2" ;;
    ::) echo "http://[::1]:$2" ;;
    *:*) echo "http://[$1]:$2" ;;
    *) echo "http://$1:$2" ;;
    esac
}
# How much a process has done by now: pages read from disk, and time on processors.
progress() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $10, $12 + $13 }'
}
# Whether a process is stopped.
stopped() {
    stat=''
    read -r stat <"/proc/$1/stat"
    case ${stat##*) } in T*) return 0 ;; esac
    return 1
} 2>/dev/null
# Says so if a server hangs: it is stopped, or answers nobody while it does nothing. One that has much to do may be slow
# to answer, too. $1 is the server, $2 its process, $3 where it listens: not where it is planned to.
hangs() {
    if stopped "$2"; then
        say serving "$1" hangs 'its process is stopped (SIGSTOP)'
        return
    fi
    before=$(progress "$2")
    for seconds in 4 2; do
        curl -q -s -o /dev/null --noproxy '*' --max-time $seconds "$3"
        # Refused, timed out, empty, cut off. Anything else is a response, or nothing is known of it.
        case $? in 7 | 28 | 52 | 56) ;; *) return 0 ;; esac
        sleep 0.5
    done
    after=$(progress "$2")
    # Where others have the processors or the disk, one of its threads waits for them.
    ! cat "/proc/$2/task"/*/stat | sed 's/.*) //' | grep -q '^[RD]' &&
        [ -n "$after" ] && echo "$before $after" | awk '{ exit !($1 == $3 && $4 - $2 <= 2) }' &&
        say serving "$1" hangs 'it answers nobody, and does nothing'
} 2>/dev/null
# Servers that are still to be asked, a line each, as `hangs` wants them; and where.
to_ask='' urls=''
ask_later() {
    if stopped "$2"; then
        hangs "$@"
        return
    fi
    to_ask="$to_ask$*
"
    urls="$urls -o /dev/null $3"
}
# One call for all: most answer at once, and only where one does not, each is asked for itself.
ask_all() {
    [ -n "$to_ask" ] && ! curl -q -s --fail-early --noproxy '*' --max-time 1 $urls || return 0
    while read -r name pid url; do
        [ -z "$name" ] || hangs "$name" "$pid" "$url" &
    done <<END
$to_ask
END
    wait
} 2>/dev/null
# What systemd says of units, each before an empty line.
show_units() {
    systemctl show -p Id,Names,MainPID,ActiveState,UnitFileState,NeedDaemonReload,InvocationID,FragmentPath,DropInPaths "$@" 2>/dev/null
    said=$?
    echo
    return $said
}
# What systemd and the kernel say of a unit that is ours. $1 is the unit, $2 what systemd says, as NAME=value lines.
unit() {
    unit=$1 name=${1%.service} show=$2
    pid='' active='' enabled='' reload='' run=''
    while IFS= read -r line; do
        value=${line#*=}
        case $line in
        MainPID=*) pid=$value ;;
        ActiveState=*) active=$value ;;
        UnitFileState=*) enabled=$value ;;
        NeedDaemonReload=*) reload=$value ;;
        InvocationID=*) run=$value ;;
        esac
    done <<END
$show
END
    spec='' port='' waits=''
    if [ "$pid" != 0 ]; then
        # As `spec=… port=…`: what parts variables and arguments in /proc is dropped.
        said=$(sed -z -n 's/^LLAMAHERD_SPEC=\(.*\)/spec=\1\n/p; /^--port$/ { n; s/^\([0-9]*\).*/port=\1\n/p }' "/proc/$pid/environ" "/proc/$pid/cmdline" 2>/dev/null | tr -d '\0')
        while IFS= read -r line; do
            case $line in
            spec=*) spec=${line#*=} ;;
            port=*) port=${line#*=} ;;
            esac
        done <<END
$said
END
    else
        waits=$(sed -n 's/^ExecStart=.* --port \([0-9]*\).*/\1/p' "/etc/systemd/system/$unit" 2>/dev/null | head -n 1)
    fi
    [ -n "$spec" ] || grep -qs '^# Written by llamaherd' "/etc/systemd/system/$unit" || return
    ours="$ours$port "
    say unit "$name" "$active" "$enabled" "$reload" "$run" "$spec" "$port" "$waits"
    case "$name $pid" in
    *' 0') ;;
    'llama-reasoner '*)
        started_with "$show" - /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc | ours_of "$unit" | changed_since /run/llamaherd/started/$name | sed 's/^/changed\t/' | told $name
        if [ "$active" = active ]; then
            process "$pid" /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server llama-reasoner | told $name
            printf '%s\n' LLAMAHERD_SPEC=9413e80713cb LLAMA_ARG_CORS_ORIGINS=localhost CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5090,GPU-3090 | variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | told $name
            [ -z "$port" ] || ask_later $name "$pid" "$(url_of "$(argument "$pid" host)" "$port")/health"
        fi
        ;;
    'llama-worker '*)
        started_with "$show" - /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc | ours_of "$unit" | changed_since /run/llamaherd/started/$name | sed 's/^/changed\t/' | told $name
        if [ "$active" = active ]; then
            process "$pid" /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin/llama-server llama-worker | told $name
            printf '%s\n' LLAMAHERD_SPEC=3ed70d6043e8 LLAMA_ARG_THREADS_HTTP=1024 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-3090 | variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | told $name
            [ -z "$port" ] || ask_later $name "$pid" "$(url_of "$(argument "$pid" host)" "$port")/health"
        fi
        ;;
    esac
}

# From here on the host is asked.
theirs=$(foreign llama-reasoner.service service.d llama-.service.d)
[ -z "$theirs" ] || printf '%s\n' "$theirs" | told llama-reasoner
theirs=$(foreign llama-worker.service service.d llama-.service.d)
[ -z "$theirs" ] || printf '%s\n' "$theirs" | told llama-worker
ours=' '
set --
for file in /etc/systemd/system/llama-*.service; do
    [ ! -e "$file" ] && [ ! -L "$file" ] || set -- "$@" "${file##*/}"
done
# Units by their files, and those that systemd still has without one, in one call: each call costs as much as all the
# reading around it. One that is no unit, as a template is none, keeps it from telling of those behind it.
units=$(show_units "$@" 'llama-*.service' || [ $? -ge 75 ] || for unit in "$@" 'llama-*.service'; do show_units "$unit"; done)
seen=' ' show='' id='' names=''
while IFS= read -r line; do
    case $line in
    Id=*) id=${line#*=} ;;
    Names=*) names=${line#*=} ;;
    ?*)
        show="$show$line
"
        ;;
    *)
        # A unit ends. It may have a file under another name.
        for name in $id $names; do
            case "$seen|$id $* " in
            *" $name "*'|'*) continue ;;
            *'|'"$name "* | *'|'*" $name "*) ;;
            *) continue ;;
            esac
            seen="$seen$name "
            unit "$name" "$show"
        done
        show='' id='' names=''
        ;;
    esac
done <<END
$units

END
for name; do
    case $seen in *" $name "*) ;; *) unit "$name" '' ;; esac
done
for file in /var/lib/llamaherd/refused/*; do
    [ ! -s "$file" ] || { IFS='	' read -r tried when why <"$file" && say serving "${file##*/}" refused "$tried" "$when" "$why"; }
done
for file in /var/lib/llamaherd/kept/*/last/loaded; do
    [ ! -s "$file" ] || { name=${file%/last/loaded} && IFS= read -r loaded <"$file" && say serving "${name##*/}" loaded "$loaded"; }
done
for file in /var/lib/llamaherd/kept/*/last/holds; do
    [ ! -s "$file" ] || { name=${file%/last/holds} && IFS= read -r holds <"$file" && say serving "${name##*/}" holding "$holds"; }
done
[ ! -s /var/lib/llamaherd/kept/.exchange/back ] || say exchange "$(cat /var/lib/llamaherd/kept/.exchange/members)"
for file in /var/lib/llamaherd/kept/*/untried; do
    [ ! -s "$file" ] || { name=${file%/untried} && sort -u "$file" | sed 's/^/untried\t/' | told "${name##*/}"; }
done
for file in /run/systemd/system/llamaherd-beside-*.service; do
    [ ! -e "$file" ] || { name=${file##*/llamaherd-beside-} && say serving "llama-${name%.service}" beside; }
done
# Keys of servers that are declared, and of those that were.
for file in /etc/llamaherd/keys/*; do
    case ${file##*/} in *[!a-z0-9._-]*) continue ;; esac
    [ ! -f "$file" ] || say key-file "${file##*/}"
done
for folder in /etc/llamaherd/compose/*; do
    [ -d "$folder" ] && say project "${folder##*/}"
done
# What Docker's socket says in one call: `ids` of containers that are ours, and `image TAG ID`; `silence` where it does not
# respond. Of what it does not say its client is asked. The client waits for ever at a socket that systemd holds for a
# daemon that does not come up.
docker_says() {
    { timeout 10 curl -q -fsg --unix-socket /var/run/docker.sock -w '\n@ %{url_effective}\n' \
        'http://docker/containers/json?all=1&filters=%7B%22label%22%3A%5B%22llamaherd.spec%22%5D%7D' \
http://docker/images/llamaherd/engine:llama.cpp-1e5a4c321023-545575/json 2>/dev/null || [ $? != 124 ] || echo silence; } | awk -F '"' '
        $0 == "silence" { print }
        index($0, "[") == 1 { n = split($0, part, "[{]\"Id\":\""); known = n > 1 || $0 == "[]"; for (i = 2; i <= n; i++) ids = ids " " substr(part[i], 1, 64) }
        index($0, "{\"Id\":\"") == 1 { image = $4 }
        index($0, "@ ") == 1 {
            if (known) print "ids" ids
            known = 0
            sub(/^.*\/images\//, ""); sub(/\/json$/, "")
            if (image) print "image " $0 " " image
            image = ""
        }'
}
break='
'
said=''
if command -v docker >/dev/null; then
    said=$break$(docker_says)$break
    case $said in
    *"${break}ids"*) ids=${said#*"${break}ids"} ids=${ids%%"$break"*} ;;
    *"${break}silence$break"*) said='' ids_failed=124 ;;
    *) ids=$(query_docker ps -aq --no-trunc --filter label=llamaherd.spec 2>/dev/null) || said='' ids_failed=$? ;;
    esac
    # Where nothing of ours is in a container, Docker may do as it likes.
    for folder in / /etc/llamaherd/compose/*/; do
        [ "${ids_failed:-0}" -lt 75 ] || [ ! -d "$folder" ] || ! docker_runs || { unread Docker && break; }
    done
fi
if [ "$said" ]; then
    containers=''
    [ -z "$ids" ] || containers=$(query_docker inspect --format \
        '{{.Name}}|{{.State.Status}}|{{with index .State "Health"}}{{.Status}}{{end}}|{{.Id}}|{{with index .Config.Labels "llamaherd.port"}}{{.}}{{else}}{{range .HostConfig.PortBindings}}{{(index . 0).HostPort}}{{end}}{{end}}|{{if eq .HostConfig.NetworkMode "host"}}host{{else}}{{range .HostConfig.PortBindings}}{{(index . 0).HostIp}}{{end}}{{end}}|{{.State.Pid}}|{{.Image}}|{{with .HostConfig}}PidsLimit={{json .PidsLimit}} Memory={{json .Memory}} MemorySwap={{json .MemorySwap}} MemoryReservation={{json .MemoryReservation}} NanoCpus={{json .NanoCpus}} CpuShares={{json .CpuShares}} CpuQuota={{json .CpuQuota}} CpuPeriod={{json .CpuPeriod}} BlkioWeight={{json .BlkioWeight}} CpusetCpus={{.CpusetCpus}} CpusetMems={{.CpusetMems}} RestartPolicy.Name={{.RestartPolicy.Name}} RestartPolicy.MaximumRetryCount={{.RestartPolicy.MaximumRetryCount}}{{end}}|{{index .Config.Labels "llamaherd.spec"}}' $ids 2>/dev/null) || [ $? -lt 75 ] || unread Docker
    while IFS='|' read -r name status health id port at pid image limits spec; do
        [ -n "$name" ] || continue
        say container "$name" "$status" "$health" "$id" "$spec" "$port" "$limits"
        # One that is paused holds its port, too.
        case $status in running | paused) ours="$ours$port " ;; esac
        case $name in
        /llama-boxed)
            started_with "InvocationID=$id" - /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 | changed_since /var/lib/llamaherd/started/llama-boxed | sed 's/^/changed\t/' | told llama-boxed
            # While it starts, Docker's own program may still stand in its server's place.
            if [ "$status" = running ] && [ "$health" != starting ]; then
                printf '%s\n' LLAMA_ARG_CORS_ORIGINS=localhost CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5090 | variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | told llama-boxed
                # Docker asks, too, and finds out within two minutes.
                [ "$at" != host ] || at=$(argument "$pid" host)
                [ "$health" != healthy ] || ask_later llama-boxed "$pid" "$(url_of "$at" "$port")/health"
            fi
            was=''
            [ ! -s /var/lib/llamaherd/images/llamaherd_engine_llama.cpp-1e5a4c321023-545575 ] || read -r was </var/lib/llamaherd/images/llamaherd_engine_llama.cpp-1e5a4c321023-545575
            [ -z "$was" ] || [ "$image" = "$was" ] || printf 'replaced\t%s\n' llamaherd/engine:llama.cpp-1e5a4c321023-545575 | told llama-boxed
            # One that still loads is not asked: it may not have begun with CUDA.
            if [ "$health" = healthy ] && [ -x /opt/llamaherd/libexec/gpu-check ]; then
                pids=$(query_docker top llama-boxed -eo pid 2>/dev/null) || [ $? -lt 75 ] || unread Docker
                /opt/llamaherd/libexec/gpu-check every log "$pid ${pids#*PID}" GPU-5090 >/dev/null 2>&1 ||
                    say off-cards llama-boxed
            fi
            ;;
        /llama-small)
            started_with "InvocationID=$id" - /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 | changed_since /var/lib/llamaherd/started/llama-small | sed 's/^/changed\t/' | told llama-small
            # While it starts, Docker's own program may still stand in its server's place.
            if [ "$status" = running ] && [ "$health" != starting ]; then
                printf '%s\n' LLAMA_ARG_CORS_ORIGINS=localhost | variables "$pid" '' | told llama-small
                # Docker asks, too, and finds out within two minutes.
                [ "$at" != host ] || at=$(argument "$pid" host)
                [ "$health" != healthy ] || ask_later llama-small "$pid" "$(url_of "$at" "$port")/health"
            fi
            ;;
        esac
    done <<END
$containers
END
    # By what it was made as, where that was kept: its name can be given to any.
    case $said in
    *"${break}image "llamaherd/engine:llama.cpp-1e5a4c321023-545575' '*) have=${said##*"${break}image "llamaherd/engine:llama.cpp-1e5a4c321023-545575' '} have=${have%%"$break"*} ;;
    *) have=$(query_docker image inspect --format '{{.Id}}' llamaherd/engine:llama.cpp-1e5a4c321023-545575 2>/dev/null) || [ $? -lt 75 ] || unread Docker ;;
    esac
    was=''
    [ ! -r /var/lib/llamaherd/images/llamaherd_engine_llama.cpp-1e5a4c321023-545575 ] || read -r was </var/lib/llamaherd/images/llamaherd_engine_llama.cpp-1e5a4c321023-545575
    [ -n "$have" ] && { [ -z "$was" ] || [ "$have" = "$was" ]; } && say image llamaherd/engine:llama.cpp-1e5a4c321023-545575
fi
# Who holds the ports that are planned and are nobody's of ours. By the kernel's own lists: ss may not be installed.
for port in 8001 8002 8003 8004; do
    case $ours in *" $port "*) continue ;; esac
    inodes=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$(printf ':%04X' "$port")" '$4 == "0A" && substr($2, length($2) - 4) == port { print $10 }')
    for inode in $inodes; do
        pid=$(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" 2>/dev/null | head -n 1 | cut -d / -f 3)
        [ -n "$pid" ] || continue
        # Ours by its control group, whatever else is known of it.
        group=$(cat "/proc/$pid/cgroup")
        unit=$(printf '%s\n' "$group" | sed -n 's/.*\/\(llama-[^/]*\)\.service.*/\1/p' | head -n 1)
        if [ "$unit" ] && { grep -qsz '^LLAMAHERD_SPEC=' "/proc/$pid/environ" || grep -qs '^# Written by llamaherd' "/etc/systemd/system/$unit.service"; }; then
            say own-port "$port" "$unit"
            continue
        fi
        inside=$(printf '%s\n' "$group" | grep -o '[0-9a-f]\{64\}' | head -n 1)
        program=$(tr -d '\t' <"/proc/$pid/comm")
        container=''
        if [ "$said" ]; then
            if [ "$inside" ]; then
                container=$(query_docker inspect --type container --format '{{.Name}}' "$inside" 2>/dev/null)
            else
                container=$(query_docker ps --filter "publish=$port" --format '{{.Names}}' 2>/dev/null)
            fi || [ $? -lt 75 ] || unread Docker
        else
            # It may be one of ours, which only Docker tells.
            case $program$group in docker-proxy* | *docker[-/]"${inside:-?}"*) unread Docker ;; esac
        fi
        container=${container%%"$break"*}
        say holder "$port" "$pid" "$program" "${container#/}"
    done
done
ask_all

} </dev/null

cat
}
exit

finish
} </dev/null
