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
case $release in *[Mm]icrosoft*) [ -e /.dockerenv ] || [ -e /run/.containerenv ] || say wsl release "$release" ;; esac
for folder in /var/lib/llamaherd /var/lib; do
    [ -d "$folder" ] && say free "$folder" $(df -B1 --output=avail,source "$folder" | tail -n 1) && break
done
store=/var/lib/llamaherd/models
folder=$store
until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
say store "$folder" $(df -B1 --output=avail,source "$folder" | tail -n 1) $(findmnt -n -o FSTYPE,OPTIONS -T "$folder" | tail -n 1 | cut -d , -f 1)
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" {n = split($2, a, ":"); print "listens\t" a[n]}' | sort -u

# What lies under the system. Asked of /sys and /proc: no driver and no tool of the host's is needed.
kernel=$(uname -r)
# What the next boot starts: the link that Debian and Ubuntu keep, or else the newest.
next=$(readlink -f /boot/vmlinuz 2>/dev/null || readlink -f /vmlinuz 2>/dev/null)
[ -f "$next" ] || next=$(ls /boot/vmlinuz-* 2>/dev/null | sort -V | tail -n 1)
next=${next##*/vmlinuz-}
say machine kernel "$kernel" "${next:-$kernel}"
say machine virtual "$(systemd-detect-virt 2>/dev/null)"
case $(cat /sys/class/dmi/id/chassis_type 2>/dev/null) in 8 | 9 | 10 | 14 | 30 | 31 | 32) say machine laptop ;; esac
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
    case $(cat "$device/class") in 0x03*) ;; *) continue ;; esac
    address=${device##*/}
    id=$(cat "$device/device")
    say machine card "$address" "${id#0x}" "$(lspci -s "$address" 2>/dev/null | sed 's/^[^:]*:[^:]*: //' | tr '\t' ' ')"
done
variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
if [ -f "$variable" ]; then
    case $(od -An -tu1 -j4 -N1 "$variable" | tr -d ' ') in 1) say machine secure-boot on ;; *) say machine secure-boot off ;; esac
fi
# The key that dkms signs modules with: Ubuntu's place, then dkms' own.
for key in /var/lib/shim-signed/mok/MOK.der /var/lib/dkms/mok.pub; do
    [ -f "$key" ] || continue
    case $(mokutil --test-key "$key" 2>/dev/null) in *"already enrolled"*) say machine mok enrolled ;; *) say machine mok new ;; esac
    break
done
for tree in /lib/modules/*/build; do
    [ -d "$tree/" ] || continue
    tree=${tree%/build}
    say machine headers "${tree##*/}"
done
for compiler in /usr/bin/g++-[0-9]*; do
    [ -x "$compiler" ] && say machine gcc "${compiler##*-}"
done
say machine memory "$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)"
[ -d /boot ] && say machine boot "$(df -B1 --output=avail /boot | tail -n 1 | tr -d ' ')"
for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock; do
    [ -f "$lock" ] || continue
    # The kernel's own list of locks: fuser may not be installed.
    holder=$(awk -v inode="$(stat -c %i "$lock")" '{n = split($6, a, ":"); if (a[n] == inode && $5 > 0) {print $5; exit}}' /proc/locks)
    [ -n "$holder" ] && say machine holder "$(cat "/proc/$holder/comm" 2>/dev/null) ($holder)" && break
done
apt-mark showhold 2>/dev/null | sed 's/^/machine\theld\t/'
[ -d /sys/module/nouveau ] && say machine nouveau

for list in $(grep -lsF https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources); do
    [ "$list" = /etc/apt/sources.list.d/llamaherd-nvidia.sources ] || say repository nvidia "$list"
done
for list in $(grep -lsF 'https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH)' /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources); do
    [ "$list" = /etc/apt/sources.list.d/llamaherd-nvidia-container-toolkit.sources ] || say repository nvidia-container-toolkit "$list"
done
dpkg-query -W -f 'package\t${Package}\t${db:Status-Status}\n' ca-certificates ccache cmake curl g++ git libssl-dev mmdebstrap ninja-build python3 2>/dev/null
for user in llama llama-build llama-fetch; do
    id -u "$user" >/dev/null 2>&1 && say user "$user"
done

# The CUDA toolkit that is named, whoever brought it: what its compiler says of itself.
[ -x /usr/local/cuda-13.0/bin/nvcc ] && say toolkit "$(timeout 30 /usr/local/cuda-13.0/bin/nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
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
[ "$docker" ] && timeout 20 docker ps --format 'docker	running	{{.Names}}' 2>/dev/null
if [ -f /etc/docker/daemon.json ]; then
    say docker settings "$(stat -L -c %a /etc/docker/daemon.json)" "$(base64 -w 0 /etc/docker/daemon.json)"
fi
dpkg-query -W -f 'docker\ttoolkit\t${Package}\t${Version}\t${db:Status-Status}\n' nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1 2>/dev/null
for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
    enabled=$(systemctl is-enabled $unit 2>/dev/null)
    [ "$enabled" ] && [ "$enabled" != not-found ] && say docker refresh $unit "$enabled"
done
timeout 20 nvidia-ctk cdi list 2>/dev/null | sed -n 's/^\(nvidia\.com\/gpu=.*\)$/docker\tdevice\t\1/p'

[ -d /opt/llamaherd/builds ] && [ -d /opt/llamaherd/libexec ] && [ -d /var/lib/llamaherd/models ] && [ -d /var/lib/llamaherd/build ] && [ -d /etc/llamaherd/compose ] && [ -d /var/lib/llamaherd/work ] && [ -d /var/cache/llamaherd/sources ] && [ -d /var/cache/llamaherd/ccache ] && [ -d /var/lib/llamaherd/incoming ] && [ -d /etc/llamaherd/keys ] && say folders yes

# All in two calls: a process each would be most of what a look costs.
set -- /opt/llamaherd/libexec/wait-healthy /etc/llamaherd/compose/boxed/compose.yaml /etc/systemd/system/llama-reasoner.service /etc/llamaherd/compose/small/compose.yaml /etc/systemd/system/llama-worker.service /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/.manifest /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/.manifest /etc/apt/keyrings/llamaherd-nvidia.asc /etc/apt/sources.list.d/llamaherd-nvidia.sources /etc/apt/keyrings/llamaherd-nvidia-container-toolkit.asc /etc/apt/sources.list.d/llamaherd-nvidia-container-toolkit.sources /etc/apt/preferences.d/llamaherd-cuda /etc/systemd/system/docker.service.d/llamaherd-cards.conf /etc/apt/preferences.d/llamaherd-container-toolkit
stat --printf 'file\t%n\t%a %u %U %.Y\n' "$@" 2>/dev/null
sha256sum "$@" 2>/dev/null | sed 's/^\([0-9a-f]*\)  /sum\t\1\t/'

[ -d /opt/llamaherd/libexec/fetcher ] && say fetcher "$(cd /opt/llamaherd/libexec/fetcher && {
    find . -type f -printf '%m %u %p\n' | sort
    find . -type f -exec sha256sum {} + | sort
} | sha256sum | cut -d ' ' -f 1)"

if [ -f /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/manifest.json ] && [ -x /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin/llama-server ]; then
    say build ik_llama.cpp-e27c3d4e93b7 done
elif [ -f /var/lib/llamaherd/work/ik_llama.cpp-e27c3d4e93b7/out/manifest.json ]; then
    say build ik_llama.cpp-e27c3d4e93b7 built
elif systemctl -q is-active llamaherd-build-ik_llama.cpp-e27c3d4e93b7.service; then
    say build ik_llama.cpp-e27c3d4e93b7 building
fi
if [ -f /opt/llamaherd/builds/llama.cpp-1e5a4c321023/manifest.json ] && [ -x /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server ] && [ -x /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-fit-params ]; then
    say build llama.cpp-1e5a4c321023 done
elif [ -f /var/lib/llamaherd/work/llama.cpp-1e5a4c321023/out/manifest.json ]; then
    say build llama.cpp-1e5a4c321023 built
elif systemctl -q is-active llamaherd-build-llama.cpp-1e5a4c321023.service; then
    say build llama.cpp-1e5a4c321023 building
fi
for source in abababababababababababababababababababababababababababababababab; do
    [ -f /var/cache/llamaherd/sources/"$source" ] && say source "$source"
done

for folder in /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5; do
    [ -d "$folder" ] || continue
    [ -f "$folder/.manifest" ] && sed "s|^|verified\t$folder\t|" "$folder/.manifest"
    find "$folder" -type f ! -name .manifest -printf "stored\t$folder\t%s\t%T@\t%P\n"
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
units=$({
    cd /etc/systemd/system && ls -d llama-*.service
    systemctl list-units --all --plain --no-legend 'llama-*.service' | cut -d ' ' -f 1
} 2>/dev/null | sort -u)
for unit in $units; do
    # As NAME=value lines, in one call: each call costs as much as all the reading around it.
    show=$(systemctl show --timestamp=us+utc -p MainPID,ActiveState,UnitFileState,NeedDaemonReload,ExecMainStartTimestamp "$unit")
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    pid=$(of MainPID)
    spec='' port=''
    if [ "$pid" != 0 ]; then
        spec=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^LLAMAHERD_SPEC=//p')
        port=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | sed -n 's/.* --port \([0-9]*\).*/\1/p')
    fi
    [ -n "$spec" ] || grep -qs '^# Written by llamaherd' "/etc/systemd/system/$unit" || continue
    started=$(of ExecMainStartTimestamp)
    [ -z "$started" ] || started=$(date -d "$started" +%s.%N)
    say unit "${unit%.service}" "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$started" "$spec" "$port"
done

if [ -f /etc/systemd/system/llamaherd-gpu-power.service ]; then
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload llamaherd-gpu-power.service)
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    say power "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)"
fi
for folder in /etc/llamaherd/compose/*; do
    [ -d "$folder" ] && say project "${folder##*/}"
done
if command -v docker >/dev/null; then
    docker ps -aq --no-trunc --filter label=llamaherd.spec 2>/dev/null | xargs -r docker inspect --format \
        'container	{{.Name}}	{{.State.Status}}	{{with .State.Health}}{{.Status}}{{end}}	{{.State.StartedAt}}	{{index .Config.Labels "llamaherd.spec"}}	{{range .HostConfig.PortBindings}}{{(index . 0).HostPort}}{{end}}' 2>/dev/null
    docker image inspect --format '{{range .RepoTags}}image	{{.}}{{println}}{{end}}' llamaherd/engine:llama.cpp-1e5a4c321023-545575 2>/dev/null | grep .
fi
exit 0
