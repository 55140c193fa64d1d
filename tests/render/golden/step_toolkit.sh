# Installs CUDA 13.0, and nothing that is of a driver; others beside it, and their links, are left alone.
# For scripts that install: apt waits for whoever else installs, and takes nothing away to make room.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
wait=600
mkdir -p /var/log/llamaherd
log=/var/log/llamaherd/apt.log
date -u +'== %F %T' >>"$log"
apt_get() { apt-get -q -y -o DPkg::Lock::Timeout="$wait" "$@" >>"$log" 2>&1; }
# Who holds a lock of apt or dpkg, name and id of the process: by the kernel's own list, since fuser may not be installed.
holder() {
    for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
        [ -f "$lock" ] || continue
        pid=$(awk -v inode="$(stat -c %i "$lock")" '{n = split($6, a, ":"); if (a[n] == inode && $5 > 0) {print $5; exit}}' /proc/locks)
        [ -n "$pid" ] && [ -r "/proc/$pid/comm" ] && echo "$(cat "/proc/$pid/comm") (process $pid)" && return
    done
}
# A dpkg that was killed half-way is set right first; one that runs is waited for.
mend() {
    waited=0
    while :; do
        said=$(dpkg --configure -a 2>&1) && break
        case $said in *lock*) [ "$waited" -lt "$wait" ] || break ;; *) break ;; esac
        sleep 5
        waited=$((waited + 5))
    done
    printf '%s\n' "$said" >>"$log"
}
# $1: what could not be done
give_up() {
    held=$(holder)
    tail -n 12 "$log"
    echo "$1. The whole log is $log on the host." >&2
    [ -z "$held" ] || echo "  help: $held holds apt's locks; let it end, or end it, and run again" >&2
    exit 1
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
hold 8 host 3600 'CUDA 13.0' || exit 1
mend
apt_get update || give_up 'apt could not read its lists anew'
[ -n "$(apt-cache madison cuda-toolkit-13-0)" ] || {
    echo 'none of this host'"'"'s repositories has cuda-toolkit-13-0' >&2
    there=$(apt-cache pkgnames cuda-toolkit- | sed -n 's/^cuda-toolkit-\([0-9]*\)-\([0-9]*\)$/\1.\2/p' | sort -V | tr '\n' ' ')
    echo "  help: write another \`cuda:\`; there is ${there:-none at all: is \`gpus: repository:\` right?}" >&2
    exit 1
}
set -- cuda-toolkit-13-0
# Installed, and its compiler does not run: somebody has removed what is in it.
[ "$(dpkg-query -W -f '${db:Status-Status}' cuda-nvcc-13-0 2>/dev/null)" != installed ] || set -- --reinstall "$@" cuda-nvcc-13-0
would=$(apt-get -q -s install --no-install-recommends "$@" 2>&1) || {
    printf '%s\n' "$would" | tail -n 8
    echo 'apt cannot install cuda-toolkit-13-0 here; its reasons are above' >&2
    exit 1
}
bad=$(printf '%s\n' "$would" | while read -r verb package _; do
    case $verb in Remv) printf '%s would go; ' "$package" ;; Inst) ;; *) continue ;; esac
    case $package in cuda | cuda-[0-9]* | cuda-drivers* | cuda-runtime-* | cuda-demo-suite-* | cuda-compat-* | nvidia-driver* | nvidia-open* | nvidia-headless* | nvidia-dkms* | nvidia-kernel* | nvidia-firmware* | nvidia-utils* | nvidia-compute-utils* | nvidia-smi | nvidia-persistenced | nvidia-modprobe | nvidia-settings | nvidia-xconfig | nvidia-alternative | nvidia-legacy-check | nvidia-suspend-common | nvidia-egl* | nvidia-vulkan* | nvidia-opencl* | nvidia-vdpau* | nvidia-cuda-mps | nvidia-libopencl1 | libcuda1 | libcudadebugger1 | libnvcuvid1 | libnvoptix1 | libnvidia-[!c]* | libnvidia-cfg1* | libnvidia-compute* | libnvidia-common* | libnvidia-compiler* | libgl1-nvidia* | libglx-nvidia* | libegl-nvidia* | libgles-nvidia* | libxnvctrl* | firmware-nvidia-gsp* | firmware-nvidia-graphics | xserver-xorg-video-nvidia* | linux-modules-nvidia-* | linux-objects-nvidia-* | linux-signatures-nvidia-* | nvidia-imex* | nvidia-fabricmanager*) printf '%s would come; ' "$package" ;; esac
done)
[ -z "$bad" ] || {
    echo 'cuda-toolkit-13-0 was not installed: with it, '"${bad%; }" >&2
    echo '  help: a toolkit brings no driver and takes nothing away; see why with `apt-get -s install cuda-toolkit-13-0` on the host' >&2
    exit 1
}
apt_get install --no-install-recommends --no-remove "$@" || give_up 'apt could not install cuda-toolkit-13-0'
/usr/local/cuda-13.0/bin/nvcc --version >>"$log" 2>&1 || {
    echo 'cuda-toolkit-13-0 is installed, and there is no /usr/local/cuda-13.0/bin/nvcc that runs' >&2
    exit 1
}
