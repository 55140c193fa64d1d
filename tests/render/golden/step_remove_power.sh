# No card is held to anything any more: all go back to their defaults. The unit goes last: while it is there, so is this.
exec 8>/run/llamaherd.lock && flock 8 || exit 1
systemctl disable -q --now llamaherd-gpu-power.service 2>/dev/null
if [ -x /opt/llamaherd/libexec/gpu-power ] && command -v nvidia-smi >/dev/null; then
    /opt/llamaherd/libexec/gpu-power release || exit 1
fi
rm -rf /opt/llamaherd/libexec/gpu-power /opt/llamaherd/libexec/gpu-fans /etc/llamaherd/gpu-power /run/llamaherd/gpu-power
rm -f /etc/systemd/system/llamaherd-gpu-power.service
systemctl daemon-reload
systemctl reset-failed llamaherd-gpu-power.service 2>/dev/null
:
