# Each server, and what compiles and fetches, runs as a user of its own, who owns nothing else and cannot log in.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'making accounts and folders' || exit 1
set -eu
<<< step_unit.sh: # A user of a server's own, who owns nothing else and cannot log in.
>>>         useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
for user in llama llama-build llama-fetch llama-chat; do
    account "$user"
    # An account that is a person's is left alone: it may be the one that logs in here.
    [ "$(id -u "$user")" -ge 1000 ] || usermod --shell /usr/sbin/nologin --gid "$user" --groups '' --lock "$user"
done
umask 022
mkdir -p /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /etc/llamaherd/keys /var/cache/llamaherd/sources /var/cache/llamaherd/ccache
chown root /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /etc/llamaherd/keys
chown llama-build /var/cache/llamaherd/sources /var/cache/llamaherd/ccache
chmod 0755 /opt/llamaherd /etc/llamaherd /var/lib/llamaherd /var/cache/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd/models /var/lib/llamaherd/build /etc/llamaherd/compose /var/lib/llamaherd/work /etc/llamaherd/keys /var/cache/llamaherd/sources /var/cache/llamaherd/ccache
# A key is its reader's alone; nobody can list which there are.
install -d -m 0711 -o root -g root /etc/llamaherd/keys
# What is sent from the controller arrives here, as whoever logs in, and is checked before it is let in.
install -d -m 0700 -o "${SUDO_USER:-root}" /var/lib/llamaherd/incoming
