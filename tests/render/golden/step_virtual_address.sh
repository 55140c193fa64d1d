# The address that two gateways have in turn: tried by keepalived itself before anything of it is switched.
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
hold 8 host 3600 'the virtual address' || exit 1
if ! [ -x /usr/sbin/keepalived ] || ! id -u llama >/dev/null 2>&1; then
    echo "keepalived is not there yet: \`herd up\` without --only brings it" >&2
    exit 1
fi
new=/etc/llamaherd/address.new
rm -rf "$new"
install -d -m 0700 "$new" || exit 1
refused() {
    rm -rf "$new"
    echo "$1; what ran before still does" >&2
    exit 1
}
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
put_file /etc/llamaherd/address.new/keepalived.conf /etc/llamaherd/address.new 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KZ2xvYmFsX2RlZnMgewogICAgdnJycF92ZXJzaW9uIDMKICAgICMgV2hh
dCBpdCBydW5zIGlzIHJvb3QncyBvbiB0aGUgd2hvbGUgb2YgaXRzIHBhdGgsIGFuZCBydW5zIGFz
IGEgdXNlciB3aG8gb3ducyBub3RoaW5nLgogICAgZW5hYmxlX3NjcmlwdF9zZWN1cml0eQogICAg
c2NyaXB0X3VzZXIgbGxhbWEKfQoKIyBXaGV0aGVyIHRoaXMgaG9zdCdzIGdhdGV3YXkgYW5zd2Vy
cywgYXNrZWQgYXMgYSBjbGllbnQgYXNrcy4KdnJycF9zY3JpcHQgZ2F0ZXdheSB7CiAgICBzY3Jp
cHQgIi91c3IvYmluL2N1cmwgLXEgLXMgLWsgLWYgLS1ub3Byb3h5ICogLS1tYXgtdGltZSAyIC1v
IC9kZXYvbnVsbCBodHRwOi8vMTI3LjAuMC4xOjgwMDAvaGVhbHRoeiIKICAgIGludGVydmFsIDEK
ICAgIHRpbWVvdXQgMwogICAgZmFsbCAzCiAgICByaXNlIDIKICAgIGluaXRfZmFpbAp9Cgp2cnJw
X2luc3RhbmNlIGdhdGV3YXkgewogICAgIyBXaG8gaGFzIHRoZSBhZGRyZXNzIGtlZXBzIGl0IGFz
IGxvbmcgYXMgaXRzIGdhdGV3YXkgYW5zd2VyczogYSBtb3ZlIGVuZHMgYWxsIHN0cmVhbXMuCiAg
ICBzdGF0ZSBCQUNLVVAKICAgIG5vcHJlZW1wdAogICAgaW50ZXJmYWNlIEBJTlRFUkZBQ0VACiAg
ICB2aXJ0dWFsX3JvdXRlcl9pZCAxMTcKICAgIHByaW9yaXR5IDE1MAogICAgYWR2ZXJ0X2ludCAx
CiAgICB1bmljYXN0X3NyY19pcCAxMC43Ny4wLjEKICAgIHVuaWNhc3RfdHRsIDI1NQogICAgdW5p
Y2FzdF9wZWVyIHsKICAgICAgICAjIE9mIHRoZSBvdGhlciBob3N0IGFsb25lLCBhbmQgZnJvbSBu
byBvdGhlciBuZXR3b3JrOiBlYWNoIHJvdXRlciBvbiB0aGUgd2F5IHdvdWxkIGNvdW50IHRoYXQg
ZG93bi4KICAgICAgICAxMC43Ny4wLjIgbWluX3R0bCAyNTUKICAgIH0KICAgIHZpcnR1YWxfaXBh
ZGRyZXNzIHsKICAgICAgICAxMC43Ny4wLjUwLzMyIGRldiBASU5URVJGQUNFQAogICAgfQogICAg
dHJhY2tfc2NyaXB0IHsKICAgICAgICBnYXRld2F5CiAgICB9Cn0K
END
put_file /etc/llamaherd/address.new/virtual-address /etc/llamaherd/address.new 0755 root <<'END'
IyEvYmluL3NoCiMgV2hhdCBrZWVwYWxpdmVkIGRvZXMgbm90IGtub3cgb2YgdGhlIGhvc3QgdGhh
dCBpdCBydW5zIG9uLgojIGB2aXJ0dWFsLWFkZHJlc3MgY29uZmlndXJlIEZST00gVE9gIHdyaXRl
cyBpdHMgY29uZmlndXJhdGlvbiwgZm9yIHRoZSBpbnRlcmZhY2Ugb24gdGhlIHdheSB0byB0aGUg
b3RoZXIgaG9zdC4KIyBgdmlydHVhbC1hZGRyZXNzIHdoZXJlYCBwcmludHMgdGhlIGFkZHJlc3Ms
IGFuZCB3aGV0aGVyIGl0IGlzIGBoZXJlYCBvciBgZWxzZXdoZXJlYC4KIyBgdmlydHVhbC1hZGRy
ZXNzIGxlYXZlYCB0YWtlcyBpdCBmcm9tIHRoaXMgaG9zdCwgYWxzbyB3aGVyZSBrZWVwYWxpdmVk
IHdhcyBraWxsZWQgYW5kIGNvdWxkIG5vdC4KYWRkcmVzcz0xMC43Ny4wLjUwCndob2xlPSRhZGRy
ZXNzLzMyCnBlZXI9MTAuNzcuMC4yCgpjYXNlICQxIGluCmNvbmZpZ3VyZSkKICAgICMgQXNrZWQg
ZWFjaCB0aW1lOiB3aXRoIGFub3RoZXIgY2FyZCBpbiB0aGUgbWFjaGluZSwgaW50ZXJmYWNlcyBo
YXZlIG90aGVyIG5hbWVzLgogICAgd2F5PSQoaXAgLW8gcm91dGUgZ2V0ICIkcGVlciIgMj4vZGV2
L251bGwpCiAgICBpbnRlcmZhY2U9JChwcmludGYgJyVzXG4nICIkd2F5IiB8IHNlZCAtbiAncy8u
KiBkZXYgXChbXiBdKlwpIC4qL1wxL3AnKQogICAgY2FzZSAiJHdheSIgaW4gKiIgdmlhICIqIHwg
ImxvY2FsICIqKSBpbnRlcmZhY2U9IDs7IGVzYWMKICAgIGNhc2UgJGludGVyZmFjZSBpbgogICAg
JycgfCAqWyFBLVphLXowLTkuXy1dKikKICAgICAgICBlY2hvICJubyBuZXR3b3JrIG9mIHRoaXMg
aG9zdCBoYXMgJHBlZXIgaW4gaXQiID4mMgogICAgICAgIGV4aXQgMQogICAgICAgIDs7CiAgICBl
c2FjCiAgICBzZWQgInMvQElOVEVSRkFDRUAvJGludGVyZmFjZS8iICIkMiIgPiIkMyIKICAgIDs7
CndoZXJlKQogICAgaWYgWyAtbiAiJChpcCAtbyBhZGRyZXNzIHNob3cgdG8gIiR3aG9sZSIgMj4v
ZGV2L251bGwpIiBdOyB0aGVuCiAgICAgICAgZWNobyAiJGFkZHJlc3MgaGVyZSIKICAgIGVsc2UK
ICAgICAgICBlY2hvICIkYWRkcmVzcyBlbHNld2hlcmUiCiAgICBmaQogICAgOzsKbGVhdmUpCiAg
ICBpcCAtbyBhZGRyZXNzIHNob3cgdG8gIiR3aG9sZSIgfCB3aGlsZSByZWFkIC1yIF8gaW50ZXJm
YWNlIF87IGRvCiAgICAgICAgaXAgYWRkcmVzcyBkZWwgIiR3aG9sZSIgZGV2ICIkaW50ZXJmYWNl
IgogICAgZG9uZQogICAgOzsKKikgZXhpdCAyIDs7CmVzYWMK
END

sh "$new/virtual-address" configure "$new/keepalived.conf" "$new/tried.conf" || refused "keepalived cannot be configured"
# Before 2.2.8 it kills itself where it only tries a script that is another user's.
sed -i 's/^\( *script_user\) .*/\1 root/' "$new/tried.conf"
if ! said=$(/usr/sbin/keepalived -t -f "$new/tried.conf" 2>&1); then
    printf '%s\n' "$said" | head -n 5 | cut -c -300 >&2
    refused "keepalived does not take this configuration"
fi
rm -rf "$new"
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
put_file /etc/llamaherd/address/keepalived.conf /etc/llamaherd/address 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KZ2xvYmFsX2RlZnMgewogICAgdnJycF92ZXJzaW9uIDMKICAgICMgV2hh
dCBpdCBydW5zIGlzIHJvb3QncyBvbiB0aGUgd2hvbGUgb2YgaXRzIHBhdGgsIGFuZCBydW5zIGFz
IGEgdXNlciB3aG8gb3ducyBub3RoaW5nLgogICAgZW5hYmxlX3NjcmlwdF9zZWN1cml0eQogICAg
c2NyaXB0X3VzZXIgbGxhbWEKfQoKIyBXaGV0aGVyIHRoaXMgaG9zdCdzIGdhdGV3YXkgYW5zd2Vy
cywgYXNrZWQgYXMgYSBjbGllbnQgYXNrcy4KdnJycF9zY3JpcHQgZ2F0ZXdheSB7CiAgICBzY3Jp
cHQgIi91c3IvYmluL2N1cmwgLXEgLXMgLWsgLWYgLS1ub3Byb3h5ICogLS1tYXgtdGltZSAyIC1v
IC9kZXYvbnVsbCBodHRwOi8vMTI3LjAuMC4xOjgwMDAvaGVhbHRoeiIKICAgIGludGVydmFsIDEK
ICAgIHRpbWVvdXQgMwogICAgZmFsbCAzCiAgICByaXNlIDIKICAgIGluaXRfZmFpbAp9Cgp2cnJw
X2luc3RhbmNlIGdhdGV3YXkgewogICAgIyBXaG8gaGFzIHRoZSBhZGRyZXNzIGtlZXBzIGl0IGFz
IGxvbmcgYXMgaXRzIGdhdGV3YXkgYW5zd2VyczogYSBtb3ZlIGVuZHMgYWxsIHN0cmVhbXMuCiAg
ICBzdGF0ZSBCQUNLVVAKICAgIG5vcHJlZW1wdAogICAgaW50ZXJmYWNlIEBJTlRFUkZBQ0VACiAg
ICB2aXJ0dWFsX3JvdXRlcl9pZCAxMTcKICAgIHByaW9yaXR5IDE1MAogICAgYWR2ZXJ0X2ludCAx
CiAgICB1bmljYXN0X3NyY19pcCAxMC43Ny4wLjEKICAgIHVuaWNhc3RfdHRsIDI1NQogICAgdW5p
Y2FzdF9wZWVyIHsKICAgICAgICAjIE9mIHRoZSBvdGhlciBob3N0IGFsb25lLCBhbmQgZnJvbSBu
byBvdGhlciBuZXR3b3JrOiBlYWNoIHJvdXRlciBvbiB0aGUgd2F5IHdvdWxkIGNvdW50IHRoYXQg
ZG93bi4KICAgICAgICAxMC43Ny4wLjIgbWluX3R0bCAyNTUKICAgIH0KICAgIHZpcnR1YWxfaXBh
ZGRyZXNzIHsKICAgICAgICAxMC43Ny4wLjUwLzMyIGRldiBASU5URVJGQUNFQAogICAgfQogICAg
dHJhY2tfc2NyaXB0IHsKICAgICAgICBnYXRld2F5CiAgICB9Cn0K
END
put_file /etc/systemd/system/llamaherd-address.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KW1VuaXRdCkRlc2NyaXB0aW9uPVRoZSBhZGRyZXNzIHRoYXQgdHdvIGdh
dGV3YXlzIGhhdmUgaW4gdHVybgpXYW50cz1uZXR3b3JrLW9ubGluZS50YXJnZXQKQWZ0ZXI9bmV0
d29yay1vbmxpbmUudGFyZ2V0IGxsYW1haGVyZC1nYXRld2F5LnNlcnZpY2UKU3RhcnRMaW1pdElu
dGVydmFsU2VjPTAKCltTZXJ2aWNlXQpFeGVjU3RhcnRQcmU9L29wdC9sbGFtYWhlcmQvbGliZXhl
Yy92aXJ0dWFsLWFkZHJlc3MgY29uZmlndXJlIC9ldGMvbGxhbWFoZXJkL2FkZHJlc3Mva2VlcGFs
aXZlZC5jb25mIC9ydW4vbGxhbWFoZXJkLWFkZHJlc3Mva2VlcGFsaXZlZC5jb25mCkV4ZWNTdGFy
dD0vdXNyL3NiaW4va2VlcGFsaXZlZCAtLWRvbnQtZm9yayAtLWxvZy1jb25zb2xlIC0tdnJycCAt
LXVzZS1maWxlPS9ydW4vbGxhbWFoZXJkLWFkZHJlc3Mva2VlcGFsaXZlZC5jb25mIC0tcGlkPS9y
dW4vbGxhbWFoZXJkLWFkZHJlc3Mva2VlcGFsaXZlZC5waWQgLS12cnJwX3BpZD0vcnVuL2xsYW1h
aGVyZC1hZGRyZXNzL3ZycnAucGlkCkV4ZWNTdG9wUG9zdD0vb3B0L2xsYW1haGVyZC9saWJleGVj
L3ZpcnR1YWwtYWRkcmVzcyBsZWF2ZQpLaWxsTW9kZT1taXhlZApUaW1lb3V0U3RvcFNlYz0xMApS
ZXN0YXJ0PWFsd2F5cwpSZXN0YXJ0U2VjPTIKRW52aXJvbm1lbnQ9TExBTUFIRVJEX1NQRUM9YmNk
OWUwZWM2YWQzCgpSdW50aW1lRGlyZWN0b3J5PWxsYW1haGVyZC1hZGRyZXNzCk9PTVNjb3JlQWRq
dXN0PS0xMDAKIyBUaGUgYWRkcmVzcyBhbmQgaXRzIHBhY2tldHM7IGFuZCB3aGF0IGl0IGFza3Mg
dGhlIGdhdGV3YXkgd2l0aCBpcyBhbm90aGVyIHVzZXIncy4KQ2FwYWJpbGl0eUJvdW5kaW5nU2V0
PUNBUF9ORVRfQURNSU4gQ0FQX05FVF9SQVcgQ0FQX1NFVFVJRCBDQVBfU0VUR0lEIENBUF9LSUxM
Ck5vTmV3UHJpdmlsZWdlcz15ZXMKRGV2aWNlUG9saWN5PWNsb3NlZApMb2NrUGVyc29uYWxpdHk9
eWVzClByaXZhdGVEZXZpY2VzPXllcwpQcml2YXRlVG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVzClBy
b3RlY3RDb250cm9sR3JvdXBzPXllcwpQcm90ZWN0SG9tZT15ZXMKUHJvdGVjdEhvc3RuYW1lPXll
cwpQcm90ZWN0S2VybmVsTG9ncz15ZXMKUHJvdGVjdEtlcm5lbE1vZHVsZXM9eWVzClByb3RlY3RL
ZXJuZWxUdW5hYmxlcz15ZXMKUHJvdGVjdFByb2M9aW52aXNpYmxlClByb3RlY3RTeXN0ZW09c3Ry
aWN0ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3RBZGRyZXNzRmFtaWxpZXM9QUZfSU5FVCBBRl9JTkVU
NiBBRl9ORVRMSU5LIEFGX1BBQ0tFVCBBRl9VTklYClJlc3RyaWN0TmFtZXNwYWNlcz15ZXMKUmVz
dHJpY3RSZWFsdGltZT15ZXMKUmVzdHJpY3RTVUlEU0dJRD15ZXMKU3lzdGVtQ2FsbEFyY2hpdGVj
dHVyZXM9bmF0aXZlClN5c3RlbUNhbGxFcnJvck51bWJlcj1FUEVSTQpTeXN0ZW1DYWxsRmlsdGVy
PUBzeXN0ZW0tc2VydmljZQpVTWFzaz0wMDIyCgpbSW5zdGFsbF0KV2FudGVkQnk9bXVsdGktdXNl
ci50YXJnZXQK
END
put_file /opt/llamaherd/libexec/virtual-address /opt/llamaherd/libexec 0755 root <<'END'
IyEvYmluL3NoCiMgV2hhdCBrZWVwYWxpdmVkIGRvZXMgbm90IGtub3cgb2YgdGhlIGhvc3QgdGhh
dCBpdCBydW5zIG9uLgojIGB2aXJ0dWFsLWFkZHJlc3MgY29uZmlndXJlIEZST00gVE9gIHdyaXRl
cyBpdHMgY29uZmlndXJhdGlvbiwgZm9yIHRoZSBpbnRlcmZhY2Ugb24gdGhlIHdheSB0byB0aGUg
b3RoZXIgaG9zdC4KIyBgdmlydHVhbC1hZGRyZXNzIHdoZXJlYCBwcmludHMgdGhlIGFkZHJlc3Ms
IGFuZCB3aGV0aGVyIGl0IGlzIGBoZXJlYCBvciBgZWxzZXdoZXJlYC4KIyBgdmlydHVhbC1hZGRy
ZXNzIGxlYXZlYCB0YWtlcyBpdCBmcm9tIHRoaXMgaG9zdCwgYWxzbyB3aGVyZSBrZWVwYWxpdmVk
IHdhcyBraWxsZWQgYW5kIGNvdWxkIG5vdC4KYWRkcmVzcz0xMC43Ny4wLjUwCndob2xlPSRhZGRy
ZXNzLzMyCnBlZXI9MTAuNzcuMC4yCgpjYXNlICQxIGluCmNvbmZpZ3VyZSkKICAgICMgQXNrZWQg
ZWFjaCB0aW1lOiB3aXRoIGFub3RoZXIgY2FyZCBpbiB0aGUgbWFjaGluZSwgaW50ZXJmYWNlcyBo
YXZlIG90aGVyIG5hbWVzLgogICAgd2F5PSQoaXAgLW8gcm91dGUgZ2V0ICIkcGVlciIgMj4vZGV2
L251bGwpCiAgICBpbnRlcmZhY2U9JChwcmludGYgJyVzXG4nICIkd2F5IiB8IHNlZCAtbiAncy8u
KiBkZXYgXChbXiBdKlwpIC4qL1wxL3AnKQogICAgY2FzZSAiJHdheSIgaW4gKiIgdmlhICIqIHwg
ImxvY2FsICIqKSBpbnRlcmZhY2U9IDs7IGVzYWMKICAgIGNhc2UgJGludGVyZmFjZSBpbgogICAg
JycgfCAqWyFBLVphLXowLTkuXy1dKikKICAgICAgICBlY2hvICJubyBuZXR3b3JrIG9mIHRoaXMg
aG9zdCBoYXMgJHBlZXIgaW4gaXQiID4mMgogICAgICAgIGV4aXQgMQogICAgICAgIDs7CiAgICBl
c2FjCiAgICBzZWQgInMvQElOVEVSRkFDRUAvJGludGVyZmFjZS8iICIkMiIgPiIkMyIKICAgIDs7
CndoZXJlKQogICAgaWYgWyAtbiAiJChpcCAtbyBhZGRyZXNzIHNob3cgdG8gIiR3aG9sZSIgMj4v
ZGV2L251bGwpIiBdOyB0aGVuCiAgICAgICAgZWNobyAiJGFkZHJlc3MgaGVyZSIKICAgIGVsc2UK
ICAgICAgICBlY2hvICIkYWRkcmVzcyBlbHNld2hlcmUiCiAgICBmaQogICAgOzsKbGVhdmUpCiAg
ICBpcCAtbyBhZGRyZXNzIHNob3cgdG8gIiR3aG9sZSIgfCB3aGlsZSByZWFkIC1yIF8gaW50ZXJm
YWNlIF87IGRvCiAgICAgICAgaXAgYWRkcmVzcyBkZWwgIiR3aG9sZSIgZGV2ICIkaW50ZXJmYWNl
IgogICAgZG9uZQogICAgOzsKKikgZXhpdCAyIDs7CmVzYWMK
END

systemctl daemon-reload
systemctl -q enable llamaherd-address.service || exit 1
systemctl reset-failed llamaherd-address.service 2>/dev/null
systemctl restart llamaherd-address.service 2>/dev/null
sleep 1
if [ "$(systemctl is-active llamaherd-address.service)" != active ]; then
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-address.service 2>/dev/null | cut -c -200 >&2
    echo "keepalived does not run; the gateway answers at its host's own address" >&2
    exit 1
fi
