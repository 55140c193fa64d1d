# After going back from a driver that servers were slower by: whether the one before has come.
if [ "$(cat /sys/module/nvidia/version 2>/dev/null)" = 570.211.01 ] && timeout 30 nvidia-smi -L >/dev/null 2>&1; then
    printf '%s\n' 'driver 580.95.05 was taken back, and 570.211.01 serves again: chat is slower by it: writing code -9.0%' >&2
    echo '  help: declare another branch or version, change `gate`, or `herd up --retry` to have it as slow as it is' >&2
else
    printf '%s\n' 'driver 580.95.05 is to go, and 570.211.01 could not be brought back: chat is slower by it: writing code -9.0%' >&2
    echo '  help: /var/log/llamaherd/apt.log on the host says why' >&2
fi
exit 1
