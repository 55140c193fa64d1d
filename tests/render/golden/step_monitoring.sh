# What watches: tried by its own tools before anything of it is switched, and as it was before where that fails.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'monitoring' || exit 1
<<< step_chat.sh: # What we wrote last of files that are made of keys: by that, somebody's change is told from one of keys, which are in no
>>>     done >.new && mv -f .new "$whose"
if ! [ -x /usr/bin/promtool ] || ! [ -x /usr/bin/amtool ] || ! id -u llamaherd-monitor >/dev/null 2>&1; then
    echo "Prometheus, Alertmanager or their user are not there yet: \`herd up\` without --only brings them" >&2
    exit 1
fi
new=/etc/llamaherd/monitoring.new
old=/etc/llamaherd/monitoring.old
rm -rf "$new" "$old"
# Only their user looks into it: keys lie there.
install -d -m 0700 -o llamaherd-monitor -g llamaherd-monitor "$new" "$new/keys" || exit 1
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/monitoring.new/prometheus.yml /etc/llamaherd/monitoring.new 0600 llamaherd-monitor <<'END'
base64|<<< prometheus.yml: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>>         labels: {job: server, rig: "duo", instance: "duo.worker", model: "35b", engine: "ik_llama.cpp", waits: "yes"}
END
put_file /etc/llamaherd/monitoring.new/rules.yml /etc/llamaherd/monitoring.new 0600 llamaherd-monitor <<'END'
base64|<<< rules.yml: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>>           help: "see `systemctl --user status llamaherd-look` where the inventory is; `herd diff --tell` looks now"
END
put_file /etc/llamaherd/monitoring.new/alertmanager.yml /etc/llamaherd/monitoring.new 0600 llamaherd-monitor <<'END'
base64|<<< alertmanager.yml: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>>       - url: "http://192.0.2.9:8080/hook?from=attic"
base64|        send_resolved: true
base64|        max_alerts: 20
END
put_file /etc/llamaherd/monitoring.new/keys/box.chat /etc/llamaherd/monitoring.new/keys 0600 llamaherd-monitor <<'END'
base64|a key
base64|\ No newline at end of file
END

<<< step_virtual_address.sh: refused() {
>>>     exit 1
said=$(promtool check config "$new/prometheus.yml" 2>&1) || {
    printf '%s\n' "$said" | grep -v SUCCESS | head -n 5 | cut -c -300 >&2
    refused "Prometheus does not take this configuration"
}
said=$(amtool check-config "$new/alertmanager.yml" 2>&1) || {
    printf '%s\n' "$said" | grep -iv success | head -n 5 | cut -c -300 >&2
    refused "Alertmanager does not take this configuration"
}
forget_written monitoring
[ ! -d /etc/llamaherd/monitoring ] || mv -T /etc/llamaherd/monitoring "$old" || exit 1
mv -T "$new" /etc/llamaherd/monitoring || exit 1
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/systemd/system/llamaherd-prometheus.service /etc/systemd/system 0644 root <<'END'
base64|<<< prometheus.service: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>> WantedBy=multi-user.target
END
put_file /etc/systemd/system/llamaherd-alertmanager.service /etc/systemd/system 0644 root <<'END'
base64|<<< alertmanager.service: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>> WantedBy=multi-user.target
END

systemctl daemon-reload
systemctl -q enable llamaherd-prometheus.service llamaherd-alertmanager.service || exit 1

<<< observe_monitoring.sh: # What the Prometheus that runs has read, as a rule of it says.
>>>         grep -o '"spec":"[0-9a-f]*"' | cut -d '"' -f 4 | head -n 1
# Whether what runs has read what lies there. Prometheus reads all that it remembers before it answers.
settled() {
    for _ in $(seq 240); do
        [ "$(prometheus_read)" != dd21f58bdf32 ] ||
            ! curl -q -s -f --noproxy '*' --max-time 5 -o /dev/null http://127.0.0.1:9093/-/ready || return 0
        sleep 0.5
    done
    return 1
}
back() {
    echo "what watches does not run with this; $1" >&2
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-prometheus.service -u llamaherd-alertmanager.service 2>/dev/null | cut -c -200 >&2
    if [ -d "$old" ]; then
        rm -rf /etc/llamaherd/monitoring
        mv -T "$old" /etc/llamaherd/monitoring
        systemctl restart llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
        echo "what was read before is read again" >&2
    else
        systemctl stop llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
    fi
    exit 1
}
systemctl reset-failed llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
systemctl restart llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null || back "it does not start"
settled || back "it does not say that it has read it"
note_written monitoring /etc/llamaherd/monitoring/keys/box.chat
rm -rf "$old"
