# Without systemd nothing of the rest can run, and what starts it is not ours to do.
echo 'systemd does not run yet: /etc/wsl.conf switches it on, from the next start of this distribution' >&2
echo '  help: `wsl --list --running` in Windows says what it is called; `wsl --terminate NAME` stops it; start it, and run again' >&2
exit 1
