# After a reboot: whether the kernel has the driver that it was for.
PATH=$PATH:/usr/sbin:/sbin
said=$({ modprobe nvidia && modprobe nvidia_uvm; } 2>&1)
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
[ "$loaded" = 580.95.05 ] && rm -f /var/lib/llamaherd/driver-reboot && exit 0
[ -d /sys/module/nouveau ] && echo 'nouveau is loaded: something takes it in before it is kept out (`grep -r nouveau /etc/modprobe.d /lib/modprobe.d`)' >&2
printf '%s\n' "$said" | grep . | tail -n 3 >&2
dmesg 2>/dev/null | grep -iE 'nvrm|nvidia|lockdown' | tail -n 5 >&2
echo "this host was rebooted, and its kernel has ${loaded:-no driver}, where 580.95.05 is installed" >&2
exit 1
