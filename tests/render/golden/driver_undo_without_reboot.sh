<<< driver_undo.sh: #!/bin/sh
>>> rm -f /var/lib/llamaherd/driver-reboot
# This host is not ours to boot.
modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia 2>/dev/null
answers_within 10 && systemctl start nvidia-persistenced.service
disarm
