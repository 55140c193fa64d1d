{
<<< inspect_own_role.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# How a host really is, in texts, for roles that need more than programs. Changes nothing.
# Docker's client waits without end at a socket that systemd holds for a daemon that does not come up.
docker() { timeout 20 docker "$@"; }

section motd ''
cat /etc/motd | lines

finish
} </dev/null
