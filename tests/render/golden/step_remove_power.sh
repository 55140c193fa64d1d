# No card is held to anything any more: all go back to their defaults. The unit goes last: while it is there, so is this.
<<< step_power.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> hold 8 host 3600 'power limits' || exit 1
systemctl disable -q --now llamaherd-gpu-power.service 2>/dev/null
if [ -x /opt/llamaherd/libexec/gpu-power ] && command -v nvidia-smi >/dev/null; then
    /opt/llamaherd/libexec/gpu-power release || exit 1
fi
rm -rf /opt/llamaherd/libexec/gpu-power /opt/llamaherd/libexec/gpu-fans /etc/llamaherd/gpu-power /run/llamaherd/gpu-power
rm -f /etc/systemd/system/llamaherd-gpu-power.service
systemctl daemon-reload
systemctl reset-failed llamaherd-gpu-power.service 2>/dev/null
:
