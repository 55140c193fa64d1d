# Installs Python: the program that installs everything else is written in it.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
log=/var/log/llamaherd/apt.log
mkdir -p "${log%/*}"
date -u +'== %F %T' >>"$log"
# A dpkg that was killed half-way is set right first; one that runs is waited for.
for _ in $(seq $((600 / 5))); do
    said=$(dpkg --configure -a 2>&1) && break
    case $said in *lock*) sleep 5 ;; *) break ;; esac
done
apt_get() { apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" >>"$log" 2>&1; }
apt_get update && apt_get install --no-install-recommends --no-remove python3 || {
    tail -n 12 "$log"
    echo "apt could not install: python3. The whole log is $log on the host." >&2
    exit 1
}
