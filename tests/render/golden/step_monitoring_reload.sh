<<< step_monitoring.sh: # What watches: tried by its own tools before anything of it is switched, and as it was before where that fails.
>>>         systemctl stop llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
    exit 1
}
systemctl reload llamaherd-prometheus.service || back "it cannot be reloaded"
settled || back "it does not say that it has read it"
note_written monitoring /etc/llamaherd/monitoring/keys/box.chat
rm -rf "$old"
