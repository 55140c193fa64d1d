<<< driver_undo.sh: #!/bin/sh
>>>     rm -f /etc/systemd/system/llamaherd-driver-undo.service
    rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed /var/lib/llamaherd/driver-reading
}
<<< driver_undo.sh: from=$(cat "$before/from") to=$(cat "$before/to") cards=$(cat "$before/cards")
>>> refuse() {
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$to" 'open nvidia' "$(date -u '+%F %T UTC')" "$from" "$1" "${slower:+slower}" >/var/lib/llamaherd/driver-refused.new &&
<<< driver_undo.sh:         mv -f /var/lib/llamaherd/driver-refused.new /var/lib/llamaherd/driver-refused
>>>         systemctl -q enable nvidia-persistenced.service
# Servers were measured since, and are slower by it: then it goes, though it answers.
slower=$(cat "$before/slower" 2>/dev/null)
why=$slower
if [ ! "$slower" ] && answers_within 60; then
    rm -f /var/lib/llamaherd/driver-refused
    if [ -s /var/lib/llamaherd/driver-reading ]; then
        # It is kept until what it does to them is known.
        : >"$before/answered" && systemctl -q disable llamaherd-driver-undo.service
        rm -f /etc/systemd/system/llamaherd-driver-undo.service
        sync
        exit 0
    fi
    disarm
<<< driver_undo.sh:     exit 0
>>>     refuse "$why; driver $from could not be brought back, $log on the host says why"
    # Who has asked for it waits for the end of this.
    rm -f /run/llamaherd/reboot
    disarm
    exit 1
fi
<<< driver_undo.sh: refuse "$why"
>>> exit 1
