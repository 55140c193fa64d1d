# What tells figures of this host.
# Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
locks=/run/llamaherd/locks
# $1 file descriptor, $2 name; opens the lock, and does not wait for it.
open_lock() {
    (umask 022 && mkdir -p "${locks%/*}") && mkdir -m 0700 "$locks" 2>/dev/null
    if [ -L "$locks" ] || [ "$(stat -c '%F %u %a' "$locks")" != "directory $(id -u) 700" ]; then
        echo "$locks is no folder of root's alone, as locks need one (mode 0700): see who made it, remove it, and run again" >&2
        return 1
    fi
    (umask 077 && : >>"$locks/$2") && eval "exec $1<>\"\$locks/$2\""
}
# $3 seconds to wait, $4 what it is held for: told to whoever waits for us meanwhile.
hold() {
    open_lock "$1" "$2" || return 1
    if ! flock -n "$1"; then
        by=$(cat "$locks/$2")
        echo "waiting for another run, ${by:-which has just begun}, for up to $3 s"
        if ! flock -w "$3" "$1"; then
            by=$(cat "$locks/$2")
            echo "after $3 s another run, ${by:-which does not say what it is}, still holds $locks/$2; see with \`ps\` whether it works or hangs, wait or end it, and run again" >&2
            return 1
        fi
    fi
    echo "process $$ since $(date +%T): $4" >"$locks/$2"
}
hold 8 host 3600 'the exporter' || exit 1
if ! [ -x /usr/bin/prometheus-node-exporter ]; then
    echo "the exporter's package is not there yet: \`herd up\` without --only brings it" >&2
    exit 1
fi
# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
# $1 the path, $2 what the system says; the way out is by the reason.
cannot_write() {
    echo "cannot write $1: ${2##*: }" >&2
    near=$1
    until [ -d "$near" ]; do near=${near%/*} && near=${near:-/}; done
    on=$(df -P "$near" | awk 'NR == 2 {print $6}')
    case $2 in
    *'No space'*) echo "  help: make room on $on (\`df -h $on\`; \`df -i $on\` where it has room, but no more files), then run again" >&2 ;;
    *Read-only*) echo "  help: make $on writable (\`findmnt $on\` says how it is mounted; a disk with errors is mounted so, see \`dmesg\`), then run again" >&2 ;;
    *'not permitted'*) echo "  help: \`lsattr -d $near $1\` says whether it may not be changed (\`chattr -i\`), then run again" >&2 ;;
    *) echo "  help: see what is at $near with \`ls -la\`, then run again" >&2 ;;
    esac
    rm -f "$1.llamaherd-new" 2>/dev/null
    exit 1
}
# $1 path, $2 folder, $3 mode, $4 owner; its content comes on stdin.
put_file() {
    why=$({
        { [ -d "$2" ] || (umask 022 && mkdir -p "$2"); } &&
            base64 -d >"$1.llamaherd-new" &&
            chown "$4" "$1.llamaherd-new" &&
            chmod "$3" "$1.llamaherd-new" &&
            mv -fT "$1.llamaherd-new" "$1"
    } 2>&1) || cannot_write "$1" "$why"
}
put_file /etc/systemd/system/llamaherd-exporter.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KW1VuaXRdCkRlc2NyaXB0aW9uPUZpZ3VyZXMgb2YgdGhpcyBob3N0LCBm
b3Igd2hhdCB3YXRjaGVzIHRoZSBmbGVldApXYW50cz1uZXR3b3JrLW9ubGluZS50YXJnZXQKQWZ0
ZXI9bmV0d29yay1vbmxpbmUudGFyZ2V0ClN0YXJ0TGltaXRJbnRlcnZhbFNlYz0wCgpbU2Vydmlj
ZV0KRXhlY1N0YXJ0PS91c3IvYmluL3Byb21ldGhldXMtbm9kZS1leHBvcnRlciAtLXdlYi5saXN0
ZW4tYWRkcmVzcz06OTEwMCAtLWNvbGxlY3Rvci5kaXNhYmxlLWRlZmF1bHRzIC0tY29sbGVjdG9y
LmNwdSAtLWNvbGxlY3Rvci5kaXNrc3RhdHMgLS1jb2xsZWN0b3IuZWRhYyAtLWNvbGxlY3Rvci5m
aWxlc3lzdGVtIC0tY29sbGVjdG9yLmh3bW9uIC0tY29sbGVjdG9yLmxvYWRhdmcgLS1jb2xsZWN0
b3IubWVtaW5mbyAtLWNvbGxlY3Rvci5uZXRkZXYgLS1jb2xsZWN0b3IucHJlc3N1cmUgLS1jb2xs
ZWN0b3Iuc3RhdCAtLWNvbGxlY3Rvci50aW1lIC0tY29sbGVjdG9yLnVuYW1lIC0tY29sbGVjdG9y
LnZtc3RhdCAtLWNvbGxlY3Rvci5zeXN0ZW1kIC0tY29sbGVjdG9yLnN5c3RlbWQudW5pdC1pbmNs
dWRlPShsbGFtYXxsbGFtYWhlcmQpLS4rWy5dc2VydmljZSAtLWNvbGxlY3Rvci5zeXN0ZW1kLmVu
YWJsZS1yZXN0YXJ0cy1tZXRyaWNzClJlc3RhcnQ9YWx3YXlzClJlc3RhcnRTZWM9NQpFbnZpcm9u
bWVudD1MTEFNQUhFUkRfU1BFQz05MzJmZDk2NWE5M2EKCkR5bmFtaWNVc2VyPXllcwojIFdobyB3
YXRjaGVzLCBhbmQgdGhpcyBob3N0IGl0c2VsZjogbm9ib2R5IGVsc2UuCklQQWRkcmVzc0Rlbnk9
YW55CklQQWRkcmVzc0FsbG93PTE5Mi4wLjIuMSBsb2NhbGhvc3QKUHJvdGVjdEhvbWU9cmVhZC1v
bmx5ClJlc3RyaWN0QWRkcmVzc0ZhbWlsaWVzPUFGX0lORVQgQUZfSU5FVDYgQUZfVU5JWCBBRl9O
RVRMSU5LCkNhcGFiaWxpdHlCb3VuZGluZ1NldD0KTm9OZXdQcml2aWxlZ2VzPXllcwpEZXZpY2VQ
b2xpY3k9Y2xvc2VkCkxvY2tQZXJzb25hbGl0eT15ZXMKUHJpdmF0ZURldmljZXM9eWVzClByaXZh
dGVUbXA9eWVzClByb3RlY3RDbG9jaz15ZXMKUHJvdGVjdENvbnRyb2xHcm91cHM9eWVzClByb3Rl
Y3RIb3N0bmFtZT15ZXMKUHJvdGVjdEtlcm5lbExvZ3M9eWVzClByb3RlY3RLZXJuZWxNb2R1bGVz
PXllcwpQcm90ZWN0S2VybmVsVHVuYWJsZXM9eWVzClByb3RlY3RTeXN0ZW09c3RyaWN0ClJlbW92
ZUlQQz15ZXMKUmVzdHJpY3ROYW1lc3BhY2VzPXllcwpSZXN0cmljdFJlYWx0aW1lPXllcwpSZXN0
cmljdFNVSURTR0lEPXllcwpTeXN0ZW1DYWxsQXJjaGl0ZWN0dXJlcz1uYXRpdmUKU3lzdGVtQ2Fs
bEVycm9yTnVtYmVyPUVQRVJNClN5c3RlbUNhbGxGaWx0ZXI9QHN5c3RlbS1zZXJ2aWNlCgpbSW5z
dGFsbF0KV2FudGVkQnk9bXVsdGktdXNlci50YXJnZXQK
END

systemctl daemon-reload
systemctl -q enable llamaherd-exporter.service || exit 1
systemctl reset-failed llamaherd-exporter.service 2>/dev/null
systemctl restart llamaherd-exporter.service || exit 1
sleep 1
if [ "$(systemctl is-active llamaherd-exporter.service)" != active ]; then
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-exporter.service | cut -c -200 >&2
    echo "the exporter does not run" >&2
    exit 1
fi
