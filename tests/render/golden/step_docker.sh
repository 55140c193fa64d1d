# Docker and its Compose, running now and after every boot.
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

# Its network may be one that somebody else has: where it comes up for the first time, the answers to them would go there.
bridges() { ls /sys/class/net | grep -E '^(docker0|br-[0-9a-f]{12})$'; }
armed=''
if ! systemctl -q is-active docker.service; then
    {
        echo 'systemctl disable --now docker.service docker.socket containerd.service'
        printf "there='%s'\n" "$(bridges | tr '\n' ' ')"
        cat <<'END'
for link in $(ls /sys/class/net | grep -E '^(docker0|br-[0-9a-f]{12})$'); do
    case " $there " in *" $link "*) ;; *) ip link delete "$link" ;; esac
done
END
    } | arm docker 3600 || exit 1
    armed=yes
fi
# Installs what is missing.
<<< step_toolkit.sh: # For scripts that install: apt waits for whoever else installs, and takes nothing away to make room.
>>>     exit 1
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
if docker_answers; then
    [ -z "$armed" ] || arm_within docker 120
    exit 0
fi
journalctl -q -u docker -n 10 --no-pager -o cat | cut -c -300 >&2
echo 'Docker does not answer; its last lines are above, all of them in: journalctl -u docker' >&2
exit 1
