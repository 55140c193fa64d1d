# Cards for containers: Docker's settings, what describes cards for CDI, and Docker anew for what it still lacks.
<<< step_docker.sh: # What may cut the line is taken back by this host itself, unless a new login disarms that: by a timer of systemd, which
>>>     rm -f "$undos/$1.undone"
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
<<< step_accounts.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
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
base64|{
base64|    "runtimes": {
base64|        "nvidia": {
base64|            "args": [],
base64|            "path": "nvidia-container-runtime"
base64|        }
base64|    },
base64|    "features": {
base64|        "cdi": true
base64|    }
base64|}
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
<<< step_driver.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/systemd/system/docker.service.d/llamaherd-cards.conf /etc/systemd/system/docker.service.d 0644 root <<'END'
base64|<<< docker_cards.conf: # Written by llamaherd for rig `duo`: change the inventory, not this file.
base64|>>> After=nvidia-cdi-refresh.service
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
<<< step_docker.sh: # Whether Docker answers within three minutes: with many containers it takes one to start. Its client waits for ever at a
>>>         sleep 1
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
