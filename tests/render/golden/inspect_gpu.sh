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
cat
}
exit

finish
} </dev/null
