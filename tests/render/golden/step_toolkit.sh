# Installs CUDA 13.0, and nothing that is of a driver; others beside it, and their links, are left alone.
# For scripts that install: apt waits for whoever else installs, and takes nothing away to make room.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
wait=600
mkdir -p /var/log/llamaherd
log=/var/log/llamaherd/apt.log
date -u +'== %F %T' >>"$log"
apt_get() { apt-get -q -y -o DPkg::Lock::Timeout="$wait" "$@" >>"$log" 2>&1; }
<<< step_driver.sh: # Who holds a lock of apt or dpkg, name and id of the process: by the kernel's own list, since fuser may not be installed.
>>>         [ -n "$pid" ] && [ -r "/proc/$pid/comm" ] && echo "$(cat "/proc/$pid/comm") (process $pid)" && return
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
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
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
