# Installs what is missing. A dpkg that was killed half-way is set right first; one that runs is waited for.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
mkdir -p /var/log/llamaherd
log=/var/log/llamaherd/apt.log
date -u +'== %F %T' >>"$log"
for _ in $(seq 120); do
    said=$(dpkg --configure -a 2>&1) && break
    case $said in *lock*) sleep 5 ;; *) break ;; esac
done
{
    printf '%s\n' "$said"
    apt-get -q -o DPkg::Lock::Timeout=600 update &&
        apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends ca-certificates ccache cmake curl docker-cli docker-compose docker.io g++ git libssl-dev mmdebstrap ninja-build python3
} >>"$log" 2>&1 || {
    tail -n 12 "$log"
    echo "apt could not install: ca-certificates ccache cmake curl docker-cli docker-compose docker.io g++ git libssl-dev mmdebstrap ninja-build python3. The whole log is $log on the host." >&2
    exit 1
}
