# NVIDIA's container toolkit: all its packages at one version, which apt then keeps.
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
hold 8 host 3600 "NVIDIA's container toolkit" || exit 1
mend
apt_get update || give_up 'apt could not read its lists anew'
wanted=''
# The versions that all of them have, the newest last.
common=''
for package in nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1; do
    has=$(apt-cache madison "$package" | awk '{print $3}' | sort -u)
    [ "$common" ] || [ "$package" != nvidia-container-toolkit ] || common=$has
    common=$(printf '%s\n' "$common" | grep -Fx "${has:-none}")
done
version=$(printf '%s\n' "$common" | awk -v wanted="$wanted" 'wanted == "" || index($0, wanted "-") == 1 || $0 == wanted' | sort -V | tail -n 1)
[ -n "$version" ] || {
    echo "none of this host's repositories has all packages of NVIDIA's container toolkit at ${wanted:-one version}" >&2
    echo "  help: what there is of all of them: $(echo ${common:-nothing}); write another \`version:\`, or see \`repository:\`" >&2
    exit 1
}
sed "s|@version@|$version|" >/etc/apt/preferences.d/llamaherd-container-toolkit.llamaherd-new <<'END' || exit 1
# Written by llamaherd for rig `duo`: change the inventory, not this file.
# These four go together at one version, and change it together.
Package: nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1
Pin: version @version@
Pin-Priority: 1001
END
chmod 0644 /etc/apt/preferences.d/llamaherd-container-toolkit.llamaherd-new && mv -f /etc/apt/preferences.d/llamaherd-container-toolkit.llamaherd-new /etc/apt/preferences.d/llamaherd-container-toolkit || exit 1
set --
for package in nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1; do set -- "$@" "$package=$version"; done
apt_get install --no-install-recommends --no-remove --allow-downgrades "$@" ||
    give_up "apt could not install NVIDIA's container toolkit $version"
echo "NVIDIA's container toolkit is at $version"
