# Asks for a reboot. The mark is gone after it, as all of /run; the note stays until the driver is loaded.
mkdir -p /run/llamaherd /var/lib/llamaherd
: >/run/llamaherd/reboot || exit 1
echo '580.95.05 6.8.0-88-generic' >/var/lib/llamaherd/driver-reboot.llamaherd-new && mv -f /var/lib/llamaherd/driver-reboot.llamaherd-new /var/lib/llamaherd/driver-reboot && sync || exit 1
# A moment later: this connection ends in order.
systemd-run -q --on-active=2s --timer-property=AccuracySec=100ms systemctl reboot || {
    rm -f /run/llamaherd/reboot /var/lib/llamaherd/driver-reboot
    exit 1
}
