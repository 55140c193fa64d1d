# What tells figures of this host.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'the exporter' || exit 1
if ! [ -x /usr/bin/prometheus-node-exporter ] || ! id -u llamaherd-exporter >/dev/null 2>&1; then
    echo "the exporter's package or its user is not there yet: \`herd up\` without --only brings both" >&2
    exit 1
fi
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/systemd/system/llamaherd-exporter.service /etc/systemd/system 0644 root <<'END'
base64|<<< exporter_for_another.service: # Written by llamaherd for rig `duo`: change fleet.yaml, not this file.
base64|>>> WantedBy=multi-user.target
END
put_file /opt/llamaherd/libexec/figures /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< templates/monitoring/figures.py: #!/usr/bin/python3 -I
base64|>>>     main()
END
put_file /etc/systemd/system/llamaherd-figures.service /etc/systemd/system 0644 root <<'END'
base64|<<< figures.service: # Written by llamaherd for rig `duo`: change fleet.yaml, not this file.
base64|>>> UMask=0022
END
put_file /etc/systemd/system/llamaherd-figures.timer /etc/systemd/system 0644 root <<'END'
base64|<<< figures.timer: # Written by llamaherd for rig `duo`: change fleet.yaml, not this file.
base64|>>> WantedBy=timers.target
END

systemctl daemon-reload
systemctl -q enable llamaherd-exporter.service || exit 1
systemctl -q enable llamaherd-figures.timer && systemctl restart llamaherd-figures.timer || exit 1
systemctl reset-failed llamaherd-exporter.service 2>/dev/null
systemctl restart llamaherd-exporter.service || exit 1
sleep 1
if [ "$(systemctl is-active llamaherd-exporter.service)" != active ]; then
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-exporter.service | cut -c -200 >&2
    echo "the exporter does not run" >&2
    exit 1
fi
