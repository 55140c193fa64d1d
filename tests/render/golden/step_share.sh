{
LC_ALL=C
export LC_ALL
# A fact: its kind, and its fields. None holds a tab or a line break. It is written at once: others may be said meanwhile.
say() {
    fact=$1
    shift
    for field; do
        fact="$fact	$field"
    done
    printf '%s\n' "$fact"
}
# A text: what it is, and of what; then its lines, which may hold anything.
section() {
    printf '@ %s\t%s\n' "$1" "$2"
}
lines() {
    awk '{print "\t" $0}'
}
# After this nothing is said.
finish() {
    echo '@ end'
    exit 0
}
# What files of the login shell print comes before this, perhaps in the same line.
printf '\n@ begin\n'

# Opens a rig's store to a neighbour for a while. In facts, which of the files that are wanted it has, or why it cannot.
cannot() {
    say cannot "$1"
    finish
}
store=/var/lib/llamaherd/models
run=/run/llamaherd/share
unit=llamaherd-share.service
[ -x /opt/llamaherd/libexec/fetcher/fetch ] || cannot "it was never deployed to by a version that can lend models; \`herd up\` that rig first"
has=$(find "$store" -name .manifest -exec cut -f 3 {} + 2>/dev/null | sort -u | grep -Fx -e 1111111111111111111111111111111111111111111111111111111111111111 -e 2222222222222222222222222222222222222222222222222222222222222222)
[ "$has" ] || finish
umask 022
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
hold 9 share 3600 'lending models' >&2 || exit 1
if [ "$(systemctl show -P ActiveState "$unit")" != active ]; then
    rm -rf "$run"
    install -d "${run%/*}" && install -d -m 0700 -o llama-fetch -g llama-fetch "$run" "$run/secrets" || exit 1
fi
# As whose folder it is: root would follow a link that leads elsewhere.
(umask 077 && setpriv --reuid llama-fetch --regid llama-fetch --clear-groups sh -c 'base64 -d >"$1"' sh "$run/secrets/0123456789ab") <<'END' || exit 1
dG9rZW4=
END
if [ "$(systemctl show -P ActiveState "$unit")" != active ]; then
    # On the address that neighbours use, where that is one of ours; behind a router it is not.
    asked=$(getent ahosts six.lan | cut -d ' ' -f 1 | sort -u)
    bind=$(printf '%s\n' $(hostname -I) 127.0.0.1 ::1 | grep -Fx "$asked" | head -n 1)
    systemctl reset-failed "$unit" 2>/dev/null
    systemd-run -q --unit="$unit" --collect -p Type=exec -p User=llama-fetch -p ExecStopPost="+/usr/bin/rm -rf $run" \
        -p ProtectSystem=strict -p ReadWritePaths="$run" -p ProtectHome=yes -p PrivateTmp=yes -p PrivateDevices=yes -p Nice=10 \
        -p NoNewPrivileges=yes -p CapabilityBoundingSet= -p RestrictAddressFamilies="AF_INET AF_INET6 AF_UNIX" \
        -p ProtectKernelModules=yes -p ProtectKernelTunables=yes -p ProtectControlGroups=yes -p RestrictNamespaces=yes \
        -p LockPersonality=yes -p RestrictRealtime=yes -p RestrictSUIDSGID=yes -p SystemCallArchitectures=native \
        -p SystemCallFilter=@system-service -p SystemCallErrorNumber=EPERM \
        /opt/llamaherd/libexec/fetcher/fetch share "$store" "$run" --bind "${bind:-0.0.0.0}" --port 8970 --idle 900 || exit 1
    port=$(printf ':%04X' 8970)
    for _ in $(seq 100); do
        awk -v port="$port$" '$4 == "0A" && $2 ~ port {found = 1} END {exit !found}' /proc/net/tcp /proc/net/tcp6 && break
        systemctl -q is-active "$unit" || cannot "$(head -n 1 "$run/failed" 2>/dev/null | grep . || echo "it cannot open port 8970")"
        sleep 0.1
    done
fi
for sha256 in $has; do
    say has "$sha256"
done

finish
} </dev/null
