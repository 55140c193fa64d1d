# The address that two gateways have in turn: tried by keepalived itself before anything of it is switched.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'the virtual address' || exit 1
if ! [ -x /usr/sbin/keepalived ] || ! id -u llama >/dev/null 2>&1; then
    echo "keepalived is not there yet: \`herd up\` without --only brings it" >&2
    exit 1
fi
new=/etc/llamaherd/address.new
rm -rf "$new"
install -d -m 0700 "$new" || exit 1
refused() {
    rm -rf "$new"
    echo "$1; what ran before still does" >&2
    exit 1
}
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/address.new/keepalived.conf /etc/llamaherd/address.new 0644 root <<'END'
base64|# Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|<<< keepalived.conf: global_defs {
base64|>>>     virtual_router_id 117
base64|    priority 150
base64|    advert_int 1
base64|    unicast_src_ip 10.77.0.1
base64|    unicast_ttl 255
base64|    unicast_peer {
base64|        # Of the other host alone, and from no other network: each router on the way would count that down.
base64|        10.77.0.2 min_ttl 255
base64|    }
base64|<<< keepalived.conf:     virtual_ipaddress {
base64|>>>         gateway
END
put_file /etc/llamaherd/address.new/virtual-address /etc/llamaherd/address.new 0755 root <<'END'
base64|<<< virtual_address.sh: #!/bin/sh
base64|>>> *) exit 2 ;;
END

sh "$new/virtual-address" configure "$new/keepalived.conf" "$new/tried.conf" || refused "keepalived cannot be configured"
# Before 2.2.8 it kills itself where it only tries a script that is another user's.
sed -i 's/^\( *script_user\) .*/\1 root/' "$new/tried.conf"
if ! said=$(/usr/sbin/keepalived -t -f "$new/tried.conf" 2>&1); then
    printf '%s\n' "$said" | head -n 5 | cut -c -300 >&2
    refused "keepalived does not take this configuration"
fi
rm -rf "$new"
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/address/keepalived.conf /etc/llamaherd/address 0644 root <<'END'
base64|# Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|<<< keepalived.conf: global_defs {
base64|>>>     virtual_router_id 117
base64|    priority 150
base64|    advert_int 1
base64|    unicast_src_ip 10.77.0.1
base64|    unicast_ttl 255
base64|    unicast_peer {
base64|        # Of the other host alone, and from no other network: each router on the way would count that down.
base64|        10.77.0.2 min_ttl 255
base64|    }
base64|<<< keepalived.conf:     virtual_ipaddress {
base64|>>>         gateway
END
put_file /etc/systemd/system/llamaherd-address.service /etc/systemd/system 0644 root <<'END'
base64|<<< address.service: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>> WantedBy=multi-user.target
END
put_file /opt/llamaherd/libexec/virtual-address /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< virtual_address.sh: #!/bin/sh
base64|>>> *) exit 2 ;;
END

systemctl daemon-reload
systemctl -q enable llamaherd-address.service || exit 1
systemctl reset-failed llamaherd-address.service 2>/dev/null
systemctl restart llamaherd-address.service 2>/dev/null
sleep 1
if [ "$(systemctl is-active llamaherd-address.service)" != active ]; then
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-address.service 2>/dev/null | cut -c -200 >&2
    echo "keepalived does not run; the gateway answers at its host's own address" >&2
    exit 1
fi
