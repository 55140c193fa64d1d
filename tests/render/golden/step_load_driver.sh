# Loads the driver without a reboot, where that is possible: what a kernel refuses here, the next step judges.
<<< step_driver.sh: PATH=$PATH:/usr/sbin:/sbin
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'loading the driver' || exit 1
said=$({ modprobe nvidia && modprobe nvidia_uvm; } 2>&1)
if [ "$(cat /sys/module/nvidia/version 2>/dev/null)" != 580.95.05 ]; then
    echo "the module does not load as it is: $(printf '%s\n' "$said" | grep . | tail -n 1)"
    exit 0
fi
[ -d /sys/module/nvidia_uvm ] || {
    printf '%s\n' "$said" >&2
    echo "driver 580.95.05 is loaded, and nvidia_uvm does not load" >&2
    exit 1
}
rm -f /var/lib/llamaherd/driver-reboot
systemctl reset-failed nvidia-persistenced.service 2>/dev/null
systemctl start nvidia-persistenced.service || {
    journalctl -q -o cat --no-pager -n 5 -u nvidia-persistenced.service >&2
    echo "driver 580.95.05 is loaded, and nvidia-persistenced, which keeps it so, does not start" >&2
    exit 1
}
