# After a reboot: whether the kernel has the driver that it was for.
PATH=$PATH:/usr/sbin:/sbin
said=$({ modprobe nvidia && modprobe nvidia_uvm; } 2>&1)
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
if [ -f /var/lib/llamaherd/driver-refused ] && IFS='	' read -r version _ _ before why </var/lib/llamaherd/driver-refused && [ "$version" = 580.95.05 ]; then
    if [ "$loaded" = "$before" ] && timeout 30 nvidia-smi -L >/dev/null 2>&1; then
        echo "driver 580.95.05 did not come up ($why), and $before serves again: this host went back to it by itself" >&2
    else
        echo "driver 580.95.05 did not come up ($why), and $before, which was here before, does not answer either" >&2
    fi
    echo '  help: declare another branch or version, or `herd up --retry` to try the same again' >&2
    exit 1
fi
[ "$loaded" = 580.95.05 ] && rm -f /var/lib/llamaherd/driver-reboot && exit 0
[ -d /sys/module/nouveau ] && echo 'nouveau is loaded: something takes it in before it is kept out (`grep -r nouveau /etc/modprobe.d /lib/modprobe.d`)' >&2
printf '%s\n' "$said" | grep . | tail -n 3 >&2
dmesg 2>/dev/null | grep -iE 'nvrm|nvidia|lockdown' | tail -n 5 >&2
echo "this host was rebooted, and its kernel has ${loaded:-no driver}, where 580.95.05 is installed" >&2
exit 1
