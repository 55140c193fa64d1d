# Two runs at once would write these files at the same time.
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
hold 8 host 3600 'writing what all servers share' || exit 1
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
put_file /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec 0755 root <<'END'
IyEvYmluL3NoCiMgV2FpdHMgdW50aWwgdGhlIHNlcnZlciB0aGF0IGlzIGFza2VkIGZvciBpdHMg
aGVhbHRoIGF0IFVSTCAkMSBzYXlzIHRoYXQgaXRzIG1vZGVsIGlzIGxvYWRlZC4gRW5kcyBlYXJs
eSB3aGVuIHRoZQojIHNlcnZlciAoJE1BSU5QSUQpIGlzIGdvbmU7IGhvdyBsb25nIGl0IG1heSB0
YWtlIGF0IG1vc3QgaXMgVGltZW91dFN0YXJ0U2VjPSBvZiB0aGUgdW5pdCB0aGF0IGNhbGxzIGl0
LgpzZXQgLXUKdW50aWwgY3VybCAtZnMgLW8gL2Rldi9udWxsIC0tbWF4LXRpbWUgNSAiJDEiOyBk
bwogICAga2lsbCAtMCAiJE1BSU5QSUQiIDI+L2Rldi9udWxsIHx8IGV4aXQgMQogICAgc2xlZXAg
MC4yCmRvbmUK
END
put_file /opt/llamaherd/libexec/started /opt/llamaherd/libexec 0755 root <<'END'
IyEvYmluL3NoCiMgUmVjb3JkcyB3aGF0IGEgc2VydmVyIGlzIHN0YXJ0ZWQgd2l0aCwgb3Igc2F5
cyB3aGF0IG9mIHRoYXQgaGFzIGNoYW5nZWQgc2luY2U6IGEgdGltZSB0ZWxscyBub3RoaW5nIHdo
ZXJlIGEgY2xvY2sgd2FzCiMgd3JvbmcuIEZvciByb290IGFsb25lLgojCiMgICBzdGFydGVkIHJl
Y29yZHxjaGFuZ2VkIHVuaXR8Y29udGFpbmVyIE5BTUUgS0VZfC0gRk9MREVSLi4uICAgS0VZIGlz
IHRoZSBmaWxlIG9mIGl0cyBrZXksIEZPTERFUnMgdGhvc2Ugb2YgaXRzIG1vZGVscwpzZXQgLXUK
IyBXaGF0IGEgc2VydmVyIGlzIHN0YXJ0ZWQgd2l0aCwgYSBsaW5lIGVhY2g6IHdoYXQgaXQgaXMs
IGl0cyBoYXNoIG9yIG51bWJlciwgd2hlcmUgaXQgaXMuICQxIGlzIHdoYXQgc3lzdGVtZCBvciBE
b2NrZXIKIyBzYXlzIG9mIGl0LCAkMiB0aGUgZmlsZSBvZiBpdHMga2V5IG9yIC0sIGFuZCB0aGVu
IGNvbWUgdGhlIGZvbGRlcnMgb2YgaXRzIG1vZGVscy4Kc3RhcnRlZF93aXRoKCkgKAogICAgcHJp
bnRmICclc1xuJyAiJDEiIHwgc2VkIC1uICdzL15JbnZvY2F0aW9uSUQ9L3J1blx0L3AnCiAgICAj
IEEgdW5pdCBpcyBpdHMgZmlsZSBhbmQgaXRzIGRyb3AtaW5zLgogICAgcHJpbnRmICclc1xuJyAi
JDEiIHwgc2VkIC1uICdzL15GcmFnbWVudFBhdGg9Ly9wOyBzL15Ecm9wSW5QYXRocz0vL3AnIHwg
c2VkICdzLyBcLy9cblwvL2cnIHwgZ3JlcCAuIHwKICAgICAgICB0ciAnXG4nICdcMCcgfCB4YXJn
cyAtMCAtciBzaGEyNTZzdW0gfCBzZWQgJ3MvXlwoWzAtOWEtZl0qXCkgIC9maWxlXHRcMVx0LycK
ICAgICMgV2l0aCBhIHNlY3JldCBvZiB0aGlzIGhvc3Q6IHdobyByZWFkcyB0aGUgaGFzaCBjYW5u
b3QgdHJ5IGtleXMuCiAgICBzZWNyZXQ9L3Zhci9saWIvbGxhbWFoZXJkL3N0YXJ0ZWQvLnNlY3Jl
dAogICAgWyAiJDIiID0gLSBdIHx8IFsgISAtcyAiJHNlY3JldCIgXSB8fAogICAgICAgIHByaW50
ZiAna2V5XHQlc1x0JXNcbicgIiQoY2F0ICIkc2VjcmV0IiAiJDIiIHwgc2hhMjU2c3VtIHwgY3V0
IC1kICcgJyAtZiAxKSIgIiQyIgogICAgc2hpZnQgMgogICAgIyBBIGZpbGUgdGhhdCBjYW1lIGFn
YWluIGlzIGFub3RoZXIgb25lLCB3aGljaCBvbmx5IGEgbmV3IHN0YXJ0IHJlYWRzLgogICAgZm9y
IGZvbGRlcjsgZG8KICAgICAgICBmb2xkZXI9JGZvbGRlciBhd2sgLUYgJ1x0JyAneyBwcmludCAi
bW9kZWxcdCIgJDMgIlx0IiBFTlZJUk9OWyJmb2xkZXIiXSAiLyIgJDQgfScgIiRmb2xkZXIvLm1h
bmlmZXN0IgogICAgICAgIGZpbmQgIiRmb2xkZXIiIC10eXBlIGYgISAtbmFtZSAubWFuaWZlc3Qg
LXByaW50ZiAnaW5vZGVcdCVpXHQlcFxuJwogICAgZG9uZQopIDI+L2Rldi9udWxsCgojIFdoYXQg
bm8gbG9uZ2VyIGhvbGRzIG9mIHRoZSByZWNvcmQgJDEsIGEgbGluZSBlYWNoOiB3aGF0IGl0IGlz
LCBhbmQgd2hlcmU7IHdoYXQgaG9sZHMgbm93IGNvbWVzIG9uIHN0ZGluLgpjaGFuZ2VkX3NpbmNl
KCkgewogICAgaWYgWyAtZiAiJDEiIF07IHRoZW4KICAgICAgICBncmVwIC1GeHZmIC0gIiQxIiB8
IGF3ayAtRiAnXHQnICd7IHByaW50ICQxICJcdCIgJE5GIH0nCiAgICBlbHNlCiAgICAgICAgY2F0
ID4vZGV2L251bGwKICAgICAgICBwcmludGYgJ3JlY29yZFx0JXNcbicgIiQxIgogICAgZmkKfQoK
aG93PSQxIGtpbmQ9JDIgbmFtZT0kMwpzaGlmdCAzCmlmIFsgIiRraW5kIiA9IHVuaXQgXTsgdGhl
bgogICAgZm9sZGVyPS9ydW4vbGxhbWFoZXJkL3N0YXJ0ZWQKICAgIGZhY3RzPSQoc3lzdGVtY3Rs
IHNob3cgLXAgSW52b2NhdGlvbklELEZyYWdtZW50UGF0aCxEcm9wSW5QYXRocyxOZWVkRGFlbW9u
UmVsb2FkICIkbmFtZS5zZXJ2aWNlIikKZWxzZQogICAgIyBEb2NrZXIgc3RhcnRzIGNvbnRhaW5l
cnMgYnkgaXRzZWxmLCBhbHNvIGFmdGVyIGEgYm9vdDogdGhpcyBvbmUgaXMgc3RpbGwgdGhlIHNh
bWUuCiAgICBmb2xkZXI9L3Zhci9saWIvbGxhbWFoZXJkL3N0YXJ0ZWQKICAgIGZhY3RzPSQoZG9j
a2VyIGluc3BlY3QgLS10eXBlIGNvbnRhaW5lciAtLWZvcm1hdCAnSW52b2NhdGlvbklEPXt7Lklk
fX0nICIkbmFtZSIpCmZpCmlmIFsgIiRob3ciID0gY2hhbmdlZCBdOyB0aGVuCiAgICAhIHN0YXJ0
ZWRfd2l0aCAiJGZhY3RzIiAiJEAiIHwgY2hhbmdlZF9zaW5jZSAiJGZvbGRlci8kbmFtZSIgfCBn
cmVwIC4KICAgIGV4aXQKZmkKdW1hc2sgMDIyCm1rZGlyIC1wIC9ydW4vbGxhbWFoZXJkIC92YXIv
bGliL2xsYW1haGVyZCAmJiBpbnN0YWxsIC1kIC1tIDA3MDAgIiRmb2xkZXIiIC92YXIvbGliL2xs
YW1haGVyZC9zdGFydGVkIHx8IGV4aXQgMQp1bWFzayAwNzcKc2VjcmV0PS92YXIvbGliL2xsYW1h
aGVyZC9zdGFydGVkLy5zZWNyZXQKaWYgWyAhIC1zICIkc2VjcmV0IiBdOyB0aGVuCiAgICAjIFR3
byBtYXkgc3RhcnQgYXQgb25jZTogYSBsaW5rIGlzIG1hZGUgYnkgb25lIG9mIHRoZW0uCiAgICBo
ZWFkIC1jIDMyIC9kZXYvdXJhbmRvbSA+IiRzZWNyZXQuJCQiICYmIGxuICIkc2VjcmV0LiQkIiAi
JHNlY3JldCIKICAgIHJtIC1mICIkc2VjcmV0LiQkIgpmaQp7CiAgICBzdGFydGVkX3dpdGggIiRm
YWN0cyIgIiRAIgogICAgIyBXaGF0IHN5c3RlbWQgZ29lcyBieSBpcyB0aGVuIGFub3RoZXIgdGV4
dCB0aGFuIHRoZSBvbmUgb24gZGlzay4KICAgIGNhc2UgJGZhY3RzIGluICpOZWVkRGFlbW9uUmVs
b2FkPXllcyopIHByaW50ZiAnZmlsZVx0dW5yZWFkXHQlcy5zZXJ2aWNlXG4nICIkbmFtZSIgOzsg
ZXNhYwp9ID4iJGZvbGRlci8kbmFtZS5uZXciICYmIG12IC1mICIkZm9sZGVyLyRuYW1lLm5ldyIg
IiRmb2xkZXIvJG5hbWUiCg==
END

