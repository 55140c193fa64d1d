{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
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
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 9 share 3600 'lending models' >&2 || exit 1
if [ "$(systemctl show -P ActiveState "$unit")" != active ]; then
    rm -rf "$run"
    install -d "${run%/*}" && install -d -m 0700 -o llama-fetch -g llama-fetch "$run" "$run/secrets" || exit 1
fi
# As whose folder it is: root would follow a link that leads elsewhere.
(umask 077 && setpriv --reuid llama-fetch --regid llama-fetch --clear-groups sh -c 'base64 -d >"$1"' sh "$run/secrets/0123456789ab") <<'END' || exit 1
base64|token
base64|\ No newline at end of file
END
if [ "$(systemctl show -P ActiveState "$unit")" != active ]; then
    # On the address that neighbours use, where that is one of ours; behind a router it is not.
    asked=$(getent ahosts six.lan | cut -d ' ' -f 1 | sort -u)
    bind=$(printf '%s\n' $(hostname -I) 127.0.0.1 ::1 | grep -Fx "$asked" | head -n 1)
    systemctl reset-failed "$unit" 2>/dev/null
    systemd-run -q --unit="$unit" --collect -p Type=exec -p User=llama-fetch -p ExecStopPost="+/usr/bin/rm -rf $run" \
        -p ProtectSystem=strict -p ReadWritePaths="$run" -p ProtectHome=yes -p PrivateTmp=yes -p PrivateDevices=yes -p Nice=10 \
<<< step_fetch_begun.sh:         -p NoNewPrivileges=yes -p CapabilityBoundingSet= -p RestrictAddressFamilies="AF_INET AF_INET6 AF_UNIX" \
>>>         -p SystemCallFilter=@system-service -p SystemCallErrorNumber=EPERM \
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
