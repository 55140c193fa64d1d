# Cards for containers: Docker's settings, what describes cards for CDI, and Docker anew for what it still lacks.
# What may cut the line is taken back by this host itself, unless a new login disarms that: by a timer of systemd, which
# outlives this connection and whoever began it. It outlives no boot.
undos=/run/llamaherd/undo
# $1 its name, $2 seconds; what is to be run comes on stdin. Whoever moves the file first decides: timer or login.
arm() {
    (umask 077 && mkdir -p "$undos") && rm -f "$undos/$1" "$undos/$1".undone || return 1
    {
        printf 'cd %s && mv %s %s.begun || exit 0\n{\n' "$undos" "$1" "$1"
        cat
        printf '} >%s.log 2>&1\nmv %s.begun %s.undone\n' "$1" "$1" "$1"
    } >"$undos/$1.new" && mv -f "$undos/$1.new" "$undos/$1" && arm_within "$1" "$2"
}
# $1 its name, $2 seconds from now on, whatever they were before. What has begun is not armed again.
arm_within() {
    [ -e "$undos/$1" ] || return 0
    systemctl stop "llamaherd-undo-$1.timer" 2>/dev/null
    systemd-run -q --collect --unit="llamaherd-undo-$1" --on-active="$2" --timer-property=AccuracySec=1s \
        /bin/sh "$undos/$1"
}
# $1 its name: takes back what was done, here and now.
undo_now() {
    systemctl stop "llamaherd-undo-$1.timer" 2>/dev/null
    sh "$undos/$1"
    rm -f "$undos/$1.undone"
}

# Settings of before, and what runs now: a way in may go through a container.
armed=''
arm_docker() {
    [ -z "$armed" ] || return 0
    {
        printf "running='%s'\n" "$(docker ps -q --no-trunc 2>/dev/null | tr '\n' ' ')"
        cat <<'END'
path=$(readlink -f /etc/docker/daemon.json)
if [ -e docker.settings ]; then
    cp -p docker.settings "$path.llamaherd-new" && mv -fT "$path.llamaherd-new" "$path"
else
    rm -f "$path"
fi
systemctl reset-failed docker.service docker.socket
systemctl restart docker
[ -z "$running" ] || docker start $running
END
    } | arm docker 900 && armed=yes
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
hold 8 host 3600 "Docker's settings" || exit 1
# What somebody has written since it was read is not lost.
path=$(readlink -f /etc/docker/daemon.json)
if [ "$(sha256sum 2>/dev/null <"$path" | cut -c -64)" != '' ]; then
    echo '/etc/docker/daemon.json has changed while this ran, and was left alone; run again' >&2
    exit 1
fi
umask 022
mkdir -p "${path%/*}"
[ -e "$path.before-llamaherd" ] || [ ! -e "$path" ] || { cp -p "$path" "$path.before-llamaherd.new" && mv -f "$path.before-llamaherd.new" "$path.before-llamaherd"; } || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
ewogICAgInJ1bnRpbWVzIjogewogICAgICAgICJudmlkaWEiOiB7CiAgICAgICAgICAgICJhcmdz
IjogW10sCiAgICAgICAgICAgICJwYXRoIjogIm52aWRpYS1jb250YWluZXItcnVudGltZSIKICAg
ICAgICB9CiAgICB9LAogICAgImZlYXR1cmVzIjogewogICAgICAgICJjZGkiOiB0cnVlCiAgICB9
Cn0K
END
[ ! -e "$path" ] || { chmod --reference="$path" "$path.llamaherd-new" && chown --reference="$path" "$path.llamaherd-new"; } || exit 1
# Docker itself says whether it would start with them.
said=$(dockerd --validate --config-file "$path.llamaherd-new" 2>&1) || {
    rm -f "$path.llamaherd-new"
    printf '%s\n' "$said" | tail -n 3 >&2
    echo "Docker would not start with /etc/docker/daemon.json as it would be; it was left as it was" >&2
    exit 1
}
(umask 077 && mkdir -p "$undos") || exit 1
rm -f "$undos/docker.settings"
[ ! -e "$path" ] || cp -p "$path" "$undos/docker.settings" || exit 1
arm_docker || exit 1
mv -fT "$path.llamaherd-new" "$path" || exit 1
# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
# $1 the path, $2 what the system says; the way out is by the reason.
cannot_write() {
    echo "cannot write $1: ${2##*: }" >&2
    near=$1
    until [ -d "$near" ]; do near=${near%/*} && near=${near:-/}; done
    on=$(df -P "$near" | awk 'NR == 2 {print $6}')
    case $2 in
    *'No space'*) echo "  help: make room on $on (\`df -h $on\`; \`df -i $on\` where it has room, but no more files), then run again" >&2 ;;
    *Read-only*) echo "  help: make $on writable (\`findmnt $on\` says how it is mounted; a disk with errors is mounted so, see \`dmesg\`), then run again" >&2 ;;
    *'not permitted'*) echo "  help: \`lsattr -d $near $1\` says whether it may not be changed (\`chattr -i\`), then run again" >&2 ;;
    *) echo "  help: see what is at $near with \`ls -la\`, then run again" >&2 ;;
    esac
    rm -f "$1.llamaherd-new" 2>/dev/null
    exit 1
}
# $1 path, $2 folder, $3 mode, $4 owner; its content comes on stdin.
put_file() {
    why=$({
        { [ -d "$2" ] || (umask 022 && mkdir -p "$2"); } &&
            base64 -d >"$1.llamaherd-new" &&
            chown "$4" "$1.llamaherd-new" &&
            chmod "$3" "$1.llamaherd-new" &&
            mv -fT "$1.llamaherd-new" "$1"
    } 2>&1) || cannot_write "$1" "$why"
}
put_file /etc/systemd/system/docker.service.d/llamaherd-cards.conf /etc/systemd/system/docker.service.d 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4KIyBBdCBib290IERvY2tlciBzdGFydHMgY29udGFpbmVycyBvbmNl
LCBhbmQgZmFpbHMgdGhvc2Ugd2hvc2UgY2FyZHMgbm9ib2R5IGhhcyBkZXNjcmliZWQgeWV0Lgpb
VW5pdF0KV2FudHM9bnZpZGlhLWNkaS1yZWZyZXNoLnNlcnZpY2UKQWZ0ZXI9bnZpZGlhLWNkaS1y
ZWZyZXNoLnNlcnZpY2UK
END

systemctl daemon-reload
for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
    systemctl cat "$unit" >/dev/null 2>&1 && { systemctl -q enable "$unit" || exit 1; }
done
systemctl -q start nvidia-cdi-refresh.path 2>/dev/null
described() {
    there=$(timeout 20 nvidia-ctk cdi list 2>/dev/null)
    for device in nvidia.com/gpu=GPU-5090; do
        printf '%s\n' "$there" | grep -Fqx "$device" || return 1
    done
}
described || systemctl restart nvidia-cdi-refresh.service 2>/dev/null
described || {
    journalctl -q -u nvidia-cdi-refresh -n 5 --no-pager -o cat 2>/dev/null | cut -c -300 >&2
    echo 'CDI knows no such card: 'nvidia.com/gpu=GPU-5090 >&2
    echo "  help: it knows $(printf '%s\n' "$there" | grep -F nvidia.com/ | tr '\n' ' '); does \`nvidia-smi -L\` show the cards that are declared?" >&2
    exit 1
}
has_runtime() { docker info --format '{{range $name, $each := .Runtimes}}{{println $name}}{{end}}' 2>/dev/null | grep -qx nvidia; }
has_cdi() { docker info --format '{{json .CDISpecDirs}}' 2>/dev/null | grep -q /; }
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
if has_cdi && ! has_runtime; then
    # Runtimes are read anew while containers run; CDI is not.
    systemctl reload docker && sleep 1
fi
if ! has_cdi || ! has_runtime; then
    running=$(docker ps --format '{{.Names}}' | tr '\n' ' ')
    if [ "$running" ] && [ "$(docker info --format '{{.LiveRestoreEnabled}}')" != true ]; then
        echo "Docker must be restarted once to give cards to containers, and these run: $running" >&2
        echo '  help: stop them, or write `restart_docker: true` under `gpus: container_toolkit:`; then run again' >&2
        exit 1
    fi
    echo 'restarting Docker'
    arm_docker || exit 1
    systemctl restart docker
fi
docker_answers
answered=$?
[ -z "$armed" ] || arm_within docker 120
[ "$answered" = 0 ] || {
    journalctl -q -u docker -n 10 --no-pager -o cat | cut -c -300 >&2
    undo_now docker
    if docker_answers; then
        echo 'Docker does not come up with /etc/docker/daemon.json as it would be: the one before is back, and what ran is started again' >&2
    else
        echo 'Docker does not come up with /etc/docker/daemon.json as it would be, and with the one before, which is back, no more' >&2
        echo '  help: its last lines are above, all of them in: journalctl -u docker' >&2
    fi
    exit 1
}
[ "$answered" = 0 ] && has_cdi && has_runtime || {
    journalctl -q -u docker -n 10 --no-pager -o cat | cut -c -300 >&2
    echo "Docker gives no cards to containers, though its settings say so; its last lines are above" >&2
    exit 1
}
