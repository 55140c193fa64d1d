# Docker and its Compose, running now and after every boot.
# Installs what is missing.
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
mend
apt_get update && apt_get install --no-install-recommends --no-remove docker.io docker-cli docker-compose ||
    give_up 'apt could not install: docker.io docker-cli docker-compose'

# Whether Docker answers within three minutes: with many containers it takes one to start. Its client waits for ever at a
# socket that systemd holds, while the daemon behind it fails again and again.
docker_answers() {
    until=$(($(date +%s) + 180))
    while :; do
        timeout 20 docker info >/dev/null 2>&1 && return
        [ "$(date +%s)" -lt "$until" ] && ! systemctl -q is-failed docker.service || return 1
        sleep 1
    done
}
systemctl -q enable docker.service || exit 1
systemctl reset-failed docker.service docker.socket 2>/dev/null
# Not waited for: its unit may take any time to start.
systemctl start --no-block docker.service || exit 1
docker_answers && exit 0
journalctl -q -u docker -n 10 --no-pager -o cat | cut -c -300 >&2
echo 'Docker does not answer; its last lines are above, all of them in: journalctl -u docker' >&2
exit 1
