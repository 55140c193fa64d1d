# What watches: tried by its own tools before anything of it is switched, and as it was before where that fails.
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
hold 8 host 3600 'monitoring' || exit 1
if ! [ -x /usr/bin/promtool ] || ! [ -x /usr/bin/amtool ] || ! id -u llamaherd-monitor >/dev/null 2>&1; then
    echo "Prometheus, Alertmanager or their user are not there yet: \`herd up\` without --only brings them" >&2
    exit 1
fi
new=/etc/llamaherd/monitoring.new
old=/etc/llamaherd/monitoring.old
rm -rf "$new" "$old"
# Only their user looks into it: keys lie there.
install -d -m 0700 -o llamaherd-monitor -g llamaherd-monitor "$new" "$new/keys" || exit 1
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
put_file /etc/llamaherd/monitoring.new/prometheus.yml /etc/llamaherd/monitoring.new 0600 llamaherd-monitor <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KZ2xvYmFsOgogICMgTW9yZSBvZnRlbiBpcyBubyBiZXR0ZXI6IGEgc2Vy
dmVyIG1heSB0YWtlIGl0cyB0aW1lIHRvIGFuc3dlciB3aGlsZSBpdCB3b3Jrcy4KICBzY3JhcGVf
aW50ZXJ2YWw6IDMwcwogIHNjcmFwZV90aW1lb3V0OiAyNXMKICBldmFsdWF0aW9uX2ludGVydmFs
OiAzMHMKcnVsZV9maWxlczogW3J1bGVzLnltbF0KYWxlcnRpbmc6CiAgYWxlcnRtYW5hZ2VyczoK
ICAgIC0gc3RhdGljX2NvbmZpZ3M6IFt7dGFyZ2V0czogWyIxMjcuMC4wLjE6OTA5MyJdfV0Kc2Ny
YXBlX2NvbmZpZ3M6CiAgLSBqb2JfbmFtZTogd2F0Y2hlcgogICAgc3RhdGljX2NvbmZpZ3M6CiAg
ICAgIC0gdGFyZ2V0czogWyIxMjcuMC4wLjE6OTA5MCJdCiAgICAgICAgbGFiZWxzOiB7cmlnOiAi
Ym94IiwgaW5zdGFuY2U6IHByb21ldGhldXN9CiAgICAgIC0gdGFyZ2V0czogWyIxMjcuMC4wLjE6
OTA5MyJdCiAgICAgICAgbGFiZWxzOiB7cmlnOiAiYm94IiwgaW5zdGFuY2U6IGFsZXJ0bWFuYWdl
cn0KICAtIGpvYl9uYW1lOiBob3N0CiAgICBzdGF0aWNfY29uZmlnczoKICAgICAgLSB0YXJnZXRz
OiBbIjEyNy4wLjAuMTo5MTAwIl0KICAgICAgICBsYWJlbHM6IHtyaWc6ICJib3giLCBpbnN0YW5j
ZTogImJveCJ9CiAgICAgIC0gdGFyZ2V0czogWyJkdW8ubGFuOjkxMDAiXQogICAgICAgIGxhYmVs
czoge3JpZzogImR1byIsIGluc3RhbmNlOiAiZHVvIn0KICAtIGpvYl9uYW1lOiBnYXRld2F5CiAg
ICBzdGF0aWNfY29uZmlnczoKICAgICAgLSB0YXJnZXRzOiBbImR1by5sYW46ODQwNSJdCiAgICAg
ICAgbGFiZWxzOiB7cmlnOiAiZHVvIiwgaW5zdGFuY2U6ICJkdW8ifQogIC0gam9iX25hbWU6ICJz
ZXJ2ZXIgYm94LmNoYXQiCiAgICBtZXRyaWNzX3BhdGg6IC9tZXRyaWNzCiAgICBhdXRob3JpemF0
aW9uOiB7Y3JlZGVudGlhbHNfZmlsZTogImtleXMvYm94LmNoYXQifQogICAgc3RhdGljX2NvbmZp
Z3M6CiAgICAgIC0gdGFyZ2V0czogWyIxMjcuMC4wLjE6ODA4MCJdCiAgICAgICAgbGFiZWxzOiB7
am9iOiBzZXJ2ZXIsIHJpZzogImJveCIsIGluc3RhbmNlOiAiYm94LmNoYXQiLCBtb2RlbDogImdl
bW1hIiwgZW5naW5lOiAibGxhbWEuY3BwIiwgd2FpdHM6ICJubyJ9CiAgLSBqb2JfbmFtZTogInNl
cnZlciBib3guZHJhZnRlciIKICAgIG1ldHJpY3NfcGF0aDogL21ldHJpY3MKICAgIHN0YXRpY19j
b25maWdzOgogICAgICAtIHRhcmdldHM6IFsiMTI3LjAuMC4xOjgwODEiXQogICAgICAgIGxhYmVs
czoge2pvYjogc2VydmVyLCByaWc6ICJib3giLCBpbnN0YW5jZTogImJveC5kcmFmdGVyIiwgbW9k
ZWw6ICJtb2UiLCBlbmdpbmU6ICJsbGFtYS5jcHAiLCB3YWl0czogIm5vIn0KICAtIGpvYl9uYW1l
OiAic2VydmVyIGR1by53b3JrZXIiCiAgICBtZXRyaWNzX3BhdGg6IC9tZXRyaWNzCiAgICBhdXRo
b3JpemF0aW9uOiB7Y3JlZGVudGlhbHNfZmlsZTogImtleXMvZHVvLndvcmtlciJ9CiAgICBzdGF0
aWNfY29uZmlnczoKICAgICAgLSB0YXJnZXRzOiBbImR1by5sYW46ODAwMiJdCiAgICAgICAgbGFi
ZWxzOiB7am9iOiBzZXJ2ZXIsIHJpZzogImR1byIsIGluc3RhbmNlOiAiZHVvLndvcmtlciIsIG1v
ZGVsOiAiMzViIiwgZW5naW5lOiAiaWtfbGxhbWEuY3BwIiwgd2FpdHM6ICJ5ZXMifQo=
END
put_file /etc/llamaherd/monitoring.new/rules.yml /etc/llamaherd/monitoring.new 0600 llamaherd-monitor <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KZ3JvdXBzOgogIC0gbmFtZTogbGxhbWFoZXJkCiAgICBpbnRlcnZhbDog
MzBzCiAgICBydWxlczoKICAgICAgIyBXaGF0IFByb21ldGhldXMgaGFzIHJlYWQsIGFzIGl0IGNh
biBiZSBhc2tlZCBmb3IgaXQuCiAgICAgIC0gcmVjb3JkOiBsbGFtYWhlcmQ6Y29uZmlndXJhdGlv
bgogICAgICAgIGV4cHI6IHZlY3RvcigxKQogICAgICAgIGxhYmVsczoge3NwZWM6ICI1OTNiMGQz
MGUwMjcifQogICAgICAtIHJlY29yZDogbGxtOmRlY29kZV90b2tlbnNfcGVyX3NlY29uZDpyYXRl
NW0KICAgICAgICBleHByOiAicmF0ZShsbGFtYWNwcDp0b2tlbnNfcHJlZGljdGVkX3RvdGFsWzVt
XSkgLyAocmF0ZShsbGFtYWNwcDp0b2tlbnNfcHJlZGljdGVkX3NlY29uZHNfdG90YWxbNW1dKSA+
IDAuMSkgb3Igc3VtIGJ5IChyaWcsIGluc3RhbmNlLCBtb2RlbCwgZW5naW5lKSAocmF0ZSh2bGxt
OmludGVyX3Rva2VuX2xhdGVuY3lfc2Vjb25kc19jb3VudFs1bV0pKSAvIChzdW0gYnkgKHJpZywg
aW5zdGFuY2UsIG1vZGVsLCBlbmdpbmUpIChyYXRlKHZsbG06aW50ZXJfdG9rZW5fbGF0ZW5jeV9z
ZWNvbmRzX3N1bVs1bV0pKSA+IDAuMSkiCiAgICAgIC0gcmVjb3JkOiBsbG06cHJlZmlsbF90b2tl
bnNfcGVyX3NlY29uZDpyYXRlNW0KICAgICAgICBleHByOiAicmF0ZShsbGFtYWNwcDpwcm9tcHRf
dG9rZW5zX3RvdGFsWzVtXSkgLyAocmF0ZShsbGFtYWNwcDpwcm9tcHRfc2Vjb25kc190b3RhbFs1
bV0pID4gMC4xKSIKICAgICAgLSByZWNvcmQ6IGxsbTpkcmFmdHNfYWNjZXB0ZWQ6cmF0aW8zMG0K
ICAgICAgICBleHByOiAicmF0ZShsbGFtYWNwcDpzcGVjX2RlY29kZV9udW1fYWNjZXB0ZWRfdG9r
ZW5zX3RvdGFsWzMwbV0pIC8gKHJhdGUobGxhbWFjcHA6c3BlY19kZWNvZGVfbnVtX2RyYWZ0X3Rv
a2Vuc190b3RhbFszMG1dKSA+IDApIgogICAgICAtIHJlY29yZDogbGxtOnJlcXVlc3RzOnByb2Nl
c3NpbmcKICAgICAgICBleHByOiAibGxhbWFjcHA6cmVxdWVzdHNfcHJvY2Vzc2luZyBvciBzdW0g
YnkgKHJpZywgaW5zdGFuY2UsIG1vZGVsLCBlbmdpbmUpICh2bGxtOm51bV9yZXF1ZXN0c19ydW5u
aW5nKSIKICAgICAgLSByZWNvcmQ6IGxsbTpyZXF1ZXN0czp3YWl0aW5nCiAgICAgICAgZXhwcjog
ImxsYW1hY3BwOnJlcXVlc3RzX2RlZmVycmVkIG9yIHN1bSBieSAocmlnLCBpbnN0YW5jZSwgbW9k
ZWwsIGVuZ2luZSkgKHZsbG06bnVtX3JlcXVlc3RzX3dhaXRpbmcpIgogICAgICAtIHJlY29yZDog
bGxtOmRlY29kZV90b2tlbnNfcGVyX3NlY29uZDpleHBlY3RlZAogICAgICAgIGV4cHI6ICJ2ZWN0
b3IoNDUpIgogICAgICAgIGxhYmVsczogeyJyaWciOiAiYm94IiwgImluc3RhbmNlIjogImJveC5j
aGF0In0KICAgICAgLSByZWNvcmQ6IGxsYW1haGVyZDpncHVzOmRlY2xhcmVkCiAgICAgICAgZXhw
cjogInZlY3RvcigyKSIKICAgICAgICBsYWJlbHM6IHsicmlnIjogImR1byJ9CiAgICAgIC0gcmVj
b3JkOiBsbGFtYWhlcmQ6Z3B1X3Bvd2VyX2xpbWl0X3dhdHRzOmRlY2xhcmVkCiAgICAgICAgZXhw
cjogIjAgKiBsbGFtYWhlcmRfZ3B1X3Bvd2VyX2xpbWl0X3dhdHRze3JpZz1cImR1b1wiLGdwdT1c
IkdQVS0zMDkwXCJ9ICsgMjgwIgogICAgICAtIGFsZXJ0OiBSaWdVbnJlYWNoYWJsZQogICAgICAg
IGV4cHI6ICJ1cHtqb2I9XCJob3N0XCJ9ID09IDAiCiAgICAgICAgZm9yOiA1bQogICAgICAgIGxh
YmVsczoge3NldmVyaXR5OiBwYWdlfQogICAgICAgIGFubm90YXRpb25zOgogICAgICAgICAgc3Vt
bWFyeTogInJpZyB7eyAkbGFiZWxzLnJpZyB9fSBkb2VzIG5vdCBhbnN3ZXIiCiAgICAgICAgICBo
ZWxwOiAic2VlIHdoZXRoZXIgaXQgaXMgb247IGBoZXJkIHZlcmlmeSB7eyAkbGFiZWxzLnJpZyB9
fWAgc2F5cyB3aGV0aGVyIGl0cyBleHBvcnRlciBydW5zIgogICAgICAtIGFsZXJ0OiBTZXJ2ZXJE
b3duCiAgICAgICAgZXhwcjogInVwe2pvYj1cInNlcnZlclwiLHdhaXRzPVwibm9cIn0gPT0gMCIK
ICAgICAgICBmb3I6IDVtCiAgICAgICAgbGFiZWxzOiB7c2V2ZXJpdHk6IHBhZ2V9CiAgICAgICAg
YW5ub3RhdGlvbnM6CiAgICAgICAgICBzdW1tYXJ5OiAic2VydmVyIHt7ICRsYWJlbHMuaW5zdGFu
Y2UgfX0gZG9lcyBub3QgYW5zd2VyIgogICAgICAgICAgaGVscDogImBoZXJkIHZlcmlmeSB7eyAk
bGFiZWxzLnJpZyB9fWAgc2F5cyBtb3JlIgogICAgICAtIGFsZXJ0OiBTZXJ2ZXJTdG9wcGVkCiAg
ICAgICAgZXhwcjogIm5vZGVfc3lzdGVtZF91bml0X3N0YXRle25hbWU9flwibGxhbWEtLitcIixz
dGF0ZT1cImFjdGl2ZVwifSA9PSAwIgogICAgICAgIGZvcjogMTBtCiAgICAgICAgbGFiZWxzOiB7
c2V2ZXJpdHk6IHBhZ2V9CiAgICAgICAgYW5ub3RhdGlvbnM6CiAgICAgICAgICBzdW1tYXJ5OiAi
e3sgJGxhYmVscy5uYW1lIH19IG9uIHt7ICRsYWJlbHMucmlnIH19IGRvZXMgbm90IHJ1biIKICAg
ICAgICAgIGhlbHA6ICJzZWUgYHN5c3RlbWN0bCBzdGF0dXMge3sgJGxhYmVscy5uYW1lIH19YCB0
aGVyZTsgYGhlcmQgdXAge3sgJGxhYmVscy5yaWcgfX1gIHN0YXJ0cyBpdCIKICAgICAgLSBhbGVy
dDogU2VydmVyUmVzdGFydHMKICAgICAgICBleHByOiAiY2hhbmdlcyhub2RlX3N5c3RlbWRfc2Vy
dmljZV9yZXN0YXJ0X3RvdGFse25hbWU9flwibGxhbWEtLitcIn1bMzBtXSkgPiAyIgogICAgICAg
IGZvcjogMG0KICAgICAgICBsYWJlbHM6IHtzZXZlcml0eTogcGFnZX0KICAgICAgICBhbm5vdGF0
aW9uczoKICAgICAgICAgIHN1bW1hcnk6ICJ7eyAkbGFiZWxzLm5hbWUgfX0gb24ge3sgJGxhYmVs
cy5yaWcgfX0gd2FzIHN0YXJ0ZWQge3sgJHZhbHVlIH19IHRpbWVzIGluIGhhbGYgYW4gaG91ciIK
ICAgICAgICAgIGhlbHA6ICJzZWUgd2h5IGl0IGVuZHM6IGBqb3VybmFsY3RsIC11IHt7ICRsYWJl
bHMubmFtZSB9fWAgdGhlcmUiCiAgICAgIC0gYWxlcnQ6IFJlcXVlc3RzV2FpdAogICAgICAgIGV4
cHI6ICJsbG06cmVxdWVzdHM6d2FpdGluZyA+IDAiCiAgICAgICAgZm9yOiAxMG0KICAgICAgICBs
YWJlbHM6IHtzZXZlcml0eTogd2FybmluZ30KICAgICAgICBhbm5vdGF0aW9uczoKICAgICAgICAg
IHN1bW1hcnk6ICJ7eyAkdmFsdWUgfX0gcmVxdWVzdHMgd2FpdCBpbiBzZXJ2ZXIge3sgJGxhYmVs
cy5pbnN0YW5jZSB9fSIKICAgICAgICAgIGhlbHA6ICJpdCBoYXMgZmV3ZXIgc2xvdHMgdGhhbiBw
ZW9wbGUgYXNrIGZvcjogc2VlIGBwYXJhbGxlbGAsIG9yIGxldCBhIGdhdGV3YXkgc2hhcmUgdGhl
bSBvdXQiCiAgICAgIC0gYWxlcnQ6IFNsb3dlclRoYW5FeHBlY3RlZAogICAgICAgIGV4cHI6ICJs
bG06ZGVjb2RlX3Rva2Vuc19wZXJfc2Vjb25kOnJhdGU1bSA8IG9uKGluc3RhbmNlKSBncm91cF9s
ZWZ0IDAuNSAqIGxsbTpkZWNvZGVfdG9rZW5zX3Blcl9zZWNvbmQ6ZXhwZWN0ZWQgYW5kIG9uKGlu
c3RhbmNlKSBtYXhfb3Zlcl90aW1lKGxsbTpyZXF1ZXN0czpwcm9jZXNzaW5nWzVtXSkgPD0gMSIK
ICAgICAgICBmb3I6IDE1bQogICAgICAgIGxhYmVsczoge3NldmVyaXR5OiB3YXJuaW5nfQogICAg
ICAgIGFubm90YXRpb25zOgogICAgICAgICAgc3VtbWFyeTogInt7ICRsYWJlbHMuaW5zdGFuY2Ug
fX0gd3JpdGVzIHt7IHByaW50ZiBcIiUuMWZcIiAkdmFsdWUgfX0gdG9rZW5zIGEgc2Vjb25kIHRv
IG9uZSBjbGllbnQiCiAgICAgICAgICBoZWxwOiAidGhhdCBpcyBsZXNzIHRoYW4gaGFsZiBvZiBg
ZXhwZWN0LmRlY29kZWA6IG1lYXN1cmUgaXQgd2l0aCBgaGVyZCBiZW5jaGAsIGFuZCBzZWUgd2hh
dCBlbHNlIHJ1bnMgdGhlcmUiCiAgICAgIC0gYWxlcnQ6IERyYWZ0c1JlZnVzZWQKICAgICAgICBl
eHByOiAibGxtOmRyYWZ0c19hY2NlcHRlZDpyYXRpbzMwbSA8IDAuNCIKICAgICAgICBmb3I6IDMw
bQogICAgICAgIGxhYmVsczoge3NldmVyaXR5OiB3YXJuaW5nfQogICAgICAgIGFubm90YXRpb25z
OgogICAgICAgICAgc3VtbWFyeTogInt7ICRsYWJlbHMuaW5zdGFuY2UgfX0gdGFrZXMge3sgJHZh
bHVlIHwgaHVtYW5pemVQZXJjZW50YWdlIH19IG9mIHdoYXQgaXMgZHJhZnRlZCBmb3IgaXQiCiAg
ICAgICAgICBoZWxwOiAiZHJhZnRpbmcgY29zdHMgbW9yZSB0aGFuIGl0IGJyaW5nczogc2VlIGBk
cmFmdGAsIGFuZCBtZWFzdXJlIGJvdGggd2l0aCBgaGVyZCBjb21wYXJlYCIKICAgICAgLSBhbGVy
dDogRGlza0ZpbGxpbmcKICAgICAgICBleHByOiAidGltZSgpICsgbm9kZV9maWxlc3lzdGVtX2F2
YWlsX2J5dGVze2ZzdHlwZSE9XCJ0bXBmc1wifSAvIC0oZGVyaXYobm9kZV9maWxlc3lzdGVtX2F2
YWlsX2J5dGVzWzZoXSkgPCAwKSA8IHRpbWUoKSArIDM0NTYwMCBhbmQgbm9kZV9maWxlc3lzdGVt
X2F2YWlsX2J5dGVzIDwgMC4zICogbm9kZV9maWxlc3lzdGVtX3NpemVfYnl0ZXMiCiAgICAgICAg
Zm9yOiAxaAogICAgICAgIGxhYmVsczoge3NldmVyaXR5OiB3YXJuaW5nfQogICAgICAgIGFubm90
YXRpb25zOgogICAgICAgICAgc3VtbWFyeTogInt7ICRsYWJlbHMubW91bnRwb2ludCB9fSBvbiB7
eyAkbGFiZWxzLnJpZyB9fSBpcyBmdWxsIGJ5IHt7IGh1bWFuaXplVGltZXN0YW1wICR2YWx1ZSB9
fSIKICAgICAgICAgIGhlbHA6ICJgaGVyZCBtb2RlbHMge3sgJGxhYmVscy5yaWcgfX1gIGFuZCBg
aGVyZCBwcnVuZSB7eyAkbGFiZWxzLnJpZyB9fWAgc2F5IHdoYXQgY2FuIGdvIgogICAgICAtIGFs
ZXJ0OiBEaXNrRnVsbAogICAgICAgIGV4cHI6ICJub2RlX2ZpbGVzeXN0ZW1fYXZhaWxfYnl0ZXN7
ZnN0eXBlIT1cInRtcGZzXCJ9IDwgMC4wNSAqIG5vZGVfZmlsZXN5c3RlbV9zaXplX2J5dGVzIgog
ICAgICAgIGZvcjogMTBtCiAgICAgICAgbGFiZWxzOiB7c2V2ZXJpdHk6IHBhZ2V9CiAgICAgICAg
YW5ub3RhdGlvbnM6CiAgICAgICAgICBzdW1tYXJ5OiAie3sgJGxhYmVscy5tb3VudHBvaW50IH19
IG9uIHt7ICRsYWJlbHMucmlnIH19IGhhcyB7eyBodW1hbml6ZTEwMjQgJHZhbHVlIH19QiBsZWZ0
IgogICAgICAgICAgaGVscDogImBoZXJkIG1vZGVscyB7eyAkbGFiZWxzLnJpZyB9fWAgYW5kIGBo
ZXJkIHBydW5lIHt7ICRsYWJlbHMucmlnIH19YCBzYXkgd2hhdCBjYW4gZ28iCiAgICAgIC0gYWxl
cnQ6IEdwdU1pc3NpbmcKICAgICAgICBleHByOiAibGxhbWFoZXJkX2dwdXMgPCBvbihyaWcpIGdy
b3VwX2xlZnQgbGxhbWFoZXJkOmdwdXM6ZGVjbGFyZWQiCiAgICAgICAgZm9yOiA1bQogICAgICAg
IGxhYmVsczoge3NldmVyaXR5OiBwYWdlfQogICAgICAgIGFubm90YXRpb25zOgogICAgICAgICAg
c3VtbWFyeTogInt7ICRsYWJlbHMucmlnIH19IGhhcyB7eyAkdmFsdWUgfX0gR1BVcywgYW5kIG1v
cmUgYXJlIGRlY2xhcmVkIgogICAgICAgICAgaGVscDogInNlZSBgbnZpZGlhLXNtaWAgYW5kIGBq
b3VybmFsY3RsIC1rIC1nIE5WUk1gIHRoZXJlOyB3aGF0IGhhcyBmYWxsZW4gb2ZmIHRoZSBidXMg
bmVlZHMgYSByZWJvb3QiCiAgICAgIC0gYWxlcnQ6IEdwdUVycm9yCiAgICAgICAgZXhwcjogInRp
bWUoKSAtIGxsYW1haGVyZF9ncHVfeGlkX2xhc3Rfc2Vjb25kc3t4aWQ9flwiNDh8NjJ8NjR8NzR8
Nzl8OTV8MTE5fDEyMFwifSA8IDM2MDAiCiAgICAgICAgZm9yOiAwbQogICAgICAgIGxhYmVsczog
e3NldmVyaXR5OiBwYWdlfQogICAgICAgIGFubm90YXRpb25zOgogICAgICAgICAgc3VtbWFyeTog
IkdQVSB7eyAkbGFiZWxzLnBjaSB9fSBvZiB7eyAkbGFiZWxzLnJpZyB9fSBmYWlsZWQ6IFhpZCB7
eyAkbGFiZWxzLnhpZCB9fSIKICAgICAgICAgIGhlbHA6ICJzZWUgYGpvdXJuYWxjdGwgLWsgLWcg
TlZSTWAgdGhlcmUsIGFuZCBOVklESUEncyBsaXN0IG9mIFhpZCBlcnJvcnM7IG1vc3Qgb2YgdGhl
c2UgbmVlZCBhIHJlc2V0IG9yIGEgcmVib290IgogICAgICAtIGFsZXJ0OiBHcHVIb3QKICAgICAg
ICBleHByOiAibGxhbWFoZXJkX2dwdV90ZW1wZXJhdHVyZV9jZWxzaXVzID4gODgiCiAgICAgICAg
Zm9yOiAxMG0KICAgICAgICBsYWJlbHM6IHtzZXZlcml0eTogd2FybmluZ30KICAgICAgICBhbm5v
dGF0aW9uczoKICAgICAgICAgIHN1bW1hcnk6ICJHUFUge3sgJGxhYmVscy5pbmRleCB9fSBvZiB7
eyAkbGFiZWxzLnJpZyB9fSBoYXMge3sgJHZhbHVlIH19IMKwQyIKICAgICAgICAgIGhlbHA6ICJz
ZWUgaXRzIGZhbnMgYW5kIGl0cyBhaXI7IGBwb3dlcl9saW1pdGAgbWFrZXMgaXQgY29vbGVyIgog
ICAgICAtIGFsZXJ0OiBHcHVUaHJvdHRsZWQKICAgICAgICBleHByOiAibGxhbWFoZXJkX2dwdV90
aHJvdHRsZWR7d2h5PX5cImh3X3RoZXJtYWx8aHdfcG93ZXJfYnJha2VcIn0gPT0gMSIKICAgICAg
ICBmb3I6IDVtCiAgICAgICAgbGFiZWxzOiB7c2V2ZXJpdHk6IHdhcm5pbmd9CiAgICAgICAgYW5u
b3RhdGlvbnM6CiAgICAgICAgICBzdW1tYXJ5OiAiR1BVIHt7ICRsYWJlbHMuaW5kZXggfX0gb2Yg
e3sgJGxhYmVscy5yaWcgfX0gc2xvd3MgaXRzZWxmIGRvd246IHt7ICRsYWJlbHMud2h5IH19Igog
ICAgICAgICAgaGVscDogIml0IGlzIHRvbyBob3QsIG9yIGl0cyBwb3dlciBzdXBwbHkgc2F5cyBz
dG9wOiBzZWUgZmFucywgYWlyIGFuZCBjYWJsZXMiCiAgICAgIC0gYWxlcnQ6IEdwdU1lbW9yeUVy
cm9ycwogICAgICAgIGV4cHI6ICJsbGFtYWhlcmRfZ3B1X2VjY191bmNvcnJlY3RlZF9lcnJvcnMg
PiAwIgogICAgICAgIGZvcjogMG0KICAgICAgICBsYWJlbHM6IHtzZXZlcml0eTogcGFnZX0KICAg
ICAgICBhbm5vdGF0aW9uczoKICAgICAgICAgIHN1bW1hcnk6ICJHUFUge3sgJGxhYmVscy5pbmRl
eCB9fSBvZiB7eyAkbGFiZWxzLnJpZyB9fSBoYXMge3sgJHZhbHVlIH19IG1lbW9yeSBlcnJvcnMg
dGhhdCBub3RoaW5nIGNvcnJlY3RlZCIKICAgICAgICAgIGhlbHA6ICJ3aGF0IGl0IGNvbXB1dGVz
IG1heSBiZSB3cm9uZzogcmVzZXQgaXQsIGFuZCBzZWUgYG52aWRpYS1zbWkgLXEgLWQgRUNDYCB0
aGVyZSIKICAgICAgLSBhbGVydDogUG93ZXJMaW1pdExvc3QKICAgICAgICBleHByOiAibGxhbWFo
ZXJkX2dwdV9wb3dlcl9saW1pdF93YXR0cyA+IDEuMDIgKiBsbGFtYWhlcmQ6Z3B1X3Bvd2VyX2xp
bWl0X3dhdHRzOmRlY2xhcmVkIgogICAgICAgIGZvcjogMTBtCiAgICAgICAgbGFiZWxzOiB7c2V2
ZXJpdHk6IHdhcm5pbmd9CiAgICAgICAgYW5ub3RhdGlvbnM6CiAgICAgICAgICBzdW1tYXJ5OiAi
R1BVIHt7ICRsYWJlbHMuaW5kZXggfX0gb2Yge3sgJGxhYmVscy5yaWcgfX0gbWF5IHRha2Uge3sg
JHZhbHVlIH19IFcsIG1vcmUgdGhhbiBpcyBkZWNsYXJlZCIKICAgICAgICAgIGhlbHA6ICJgaGVy
ZCB1cCB7eyAkbGFiZWxzLnJpZyB9fWAgaG9sZHMgaXQgYWdhaW47IHNlZSB3aGF0IGNoYW5nZWQg
aXQiCiAgICAgIC0gYWxlcnQ6IEZpZ3VyZXNPbGQKICAgICAgICBleHByOiAidGltZSgpIC0gbGxh
bWFoZXJkX2ZpZ3VyZXNfc2Vjb25kcyA+IDMwMCIKICAgICAgICBmb3I6IDVtCiAgICAgICAgbGFi
ZWxzOiB7c2V2ZXJpdHk6IHdhcm5pbmd9CiAgICAgICAgYW5ub3RhdGlvbnM6CiAgICAgICAgICBz
dW1tYXJ5OiAibm9ib2R5IGtub3dzIGhvdyB0aGUgR1BVcyBvZiB7eyAkbGFiZWxzLnJpZyB9fSBh
cmUiCiAgICAgICAgICBoZWxwOiAic2VlIGBzeXN0ZW1jdGwgc3RhdHVzIGxsYW1haGVyZC1maWd1
cmVzYCB0aGVyZTogbnZpZGlhLXNtaSBtYXkgaGFuZyIKICAgICAgLSBhbGVydDogQ2VydGlmaWNh
dGVFbmRzCiAgICAgICAgZXhwcjogImxsYW1haGVyZF9jZXJ0aWZpY2F0ZV9lbmRfc2Vjb25kcyA8
IHRpbWUoKSArIDEyMDk2MDAiCiAgICAgICAgZm9yOiAxaAogICAgICAgIGxhYmVsczoge3NldmVy
aXR5OiB3YXJuaW5nfQogICAgICAgIGFubm90YXRpb25zOgogICAgICAgICAgc3VtbWFyeTogInRo
ZSBnYXRld2F5J3MgY2VydGlmaWNhdGUgb24ge3sgJGxhYmVscy5yaWcgfX0gZW5kcyBvbiB7eyBo
dW1hbml6ZVRpbWVzdGFtcCAkdmFsdWUgfX0iCiAgICAgICAgICBoZWxwOiAicnVuIGBoZXJkIHVw
IHt7ICRsYWJlbHMucmlnIH19YDsgd2hlcmUgaXQgaXMgbm90IG9mIHlvdXIgb3duIENBLCBwdXQg
YSBuZXcgb25lIHdoZXJlIGBnYXRld2F5LnRsc2Agc2F5cyBmaXJzdCIKICAgICAgLSBhbGVydDog
R2F0ZXdheURvd24KICAgICAgICBleHByOiAidXB7am9iPVwiZ2F0ZXdheVwifSA9PSAwIgogICAg
ICAgIGZvcjogMm0KICAgICAgICBsYWJlbHM6IHtzZXZlcml0eTogcGFnZX0KICAgICAgICBhbm5v
dGF0aW9uczoKICAgICAgICAgIHN1bW1hcnk6ICJ0aGUgZ2F0ZXdheSBvbiB7eyAkbGFiZWxzLnJp
ZyB9fSBkb2VzIG5vdCBhbnN3ZXIiCiAgICAgICAgICBoZWxwOiAic2VlIGBoZXJkIGdhdGV3YXkg
c3RhdHVzYCwgYW5kIGBqb3VybmFsY3RsIC11IGxsYW1haGVyZC1nYXRld2F5YCB0aGVyZSIKICAg
ICAgLSBhbGVydDogR2F0ZXdheVNlcnZlckRvd24KICAgICAgICBleHByOiAiaGFwcm94eV9zZXJ2
ZXJfc3RhdHVze3Byb3h5PX5cIm1fLitcIixzdGF0ZT1cIkRPV05cIn0gPT0gMSIKICAgICAgICBm
b3I6IDVtCiAgICAgICAgbGFiZWxzOiB7c2V2ZXJpdHk6IHBhZ2V9CiAgICAgICAgYW5ub3RhdGlv
bnM6CiAgICAgICAgICBzdW1tYXJ5OiAidGhlIGdhdGV3YXkgb24ge3sgJGxhYmVscy5yaWcgfX0g
ZmluZHMge3sgJGxhYmVscy5zZXJ2ZXIgfX0gYXdheSIKICAgICAgICAgIGhlbHA6ICJzZWUgYGhl
cmQgZ2F0ZXdheSBzdGF0dXNgLCBhbmQgdGhhdCBzZXJ2ZXIiCiAgICAgIC0gYWxlcnQ6IEdhdGV3
YXlTZXJ2ZXJGbGFwcwogICAgICAgIGV4cHI6ICJjaGFuZ2VzKGhhcHJveHlfc2VydmVyX2NoZWNr
X3VwX2Rvd25fdG90YWx7cHJveHk9flwibV8uK1wifVszMG1dKSA+IDMiCiAgICAgICAgZm9yOiAw
bQogICAgICAgIGxhYmVsczoge3NldmVyaXR5OiB3YXJuaW5nfQogICAgICAgIGFubm90YXRpb25z
OgogICAgICAgICAgc3VtbWFyeTogInt7ICRsYWJlbHMuc2VydmVyIH19IHdhcyBhd2F5IHt7ICR2
YWx1ZSB9fSB0aW1lcyBpbiBoYWxmIGFuIGhvdXIsIGJ5IHRoZSBnYXRld2F5IG9uIHt7ICRsYWJl
bHMucmlnIH19IgogICAgICAgICAgaGVscDogInNlZSBpdHMgbG9nLCBhbmQgdGhlIG5ldHdvcmsg
YmV0d2VlbiBib3RoIgogICAgICAtIGFsZXJ0OiBQZW9wbGVXYWl0CiAgICAgICAgZXhwcjogImhh
cHJveHlfYmFja2VuZF9xdWV1ZV90aW1lX2F2ZXJhZ2Vfc2Vjb25kc3twcm94eT1+XCJtXy4rXCJ9
ID4gNjAgYW5kIGhhcHJveHlfYmFja2VuZF9jdXJyZW50X3F1ZXVlID4gMCIKICAgICAgICBmb3I6
IDEwbQogICAgICAgIGxhYmVsczoge3NldmVyaXR5OiB3YXJuaW5nfQogICAgICAgIGFubm90YXRp
b25zOgogICAgICAgICAgc3VtbWFyeTogInt7ICRsYWJlbHMucHJveHkgfX0gb24ge3sgJGxhYmVs
cy5yaWcgfX06IHJlcXVlc3RzIHdhaXQgZm9yIHt7IHByaW50ZiBcIiUuMGZcIiAkdmFsdWUgfX0g
cyIKICAgICAgICAgIGhlbHA6ICJtb3JlIGlzIGFza2VkIHRoYW4gaXRzIHNlcnZlcnMgYW5zd2Vy
OiBzZWUgYGhlcmQgZ2F0ZXdheSBzdGF0dXNgIgogICAgICAtIGFsZXJ0OiBQZW9wbGVSZWZ1c2Vk
CiAgICAgICAgZXhwcjogIjYwICogcmF0ZShoYXByb3h5X2Zyb250ZW5kX3JlcXVlc3RzX2Rlbmll
ZF90b3RhbHtwcm94eT1cImdhdGV3YXlcIn1bMTBtXSkgPiAyIgogICAgICAgIGZvcjogMTBtCiAg
ICAgICAgbGFiZWxzOiB7c2V2ZXJpdHk6IHdhcm5pbmd9CiAgICAgICAgYW5ub3RhdGlvbnM6CiAg
ICAgICAgICBzdW1tYXJ5OiAidGhlIGdhdGV3YXkgb24ge3sgJGxhYmVscy5yaWcgfX0gdGVsbHMg
cGVvcGxlIHt7IHByaW50ZiBcIiUuMGZcIiAkdmFsdWUgfX0gdGltZXMgYSBtaW51dGUgdG8gY29t
ZSBiYWNrIgogICAgICAgICAgaGVscDogInNlZSBgaGVyZCBnYXRld2F5IHN0YXR1c2AgZm9yIHdo
byBhc2tzLCBhbmQgYHF1ZXVlYCBhbmQgYHN0cmVhbXNgIGluIGZsZWV0LnlhbWwiCg==
END
put_file /etc/llamaherd/monitoring.new/alertmanager.yml /etc/llamaherd/monitoring.new 0600 llamaherd-monitor <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KZ2xvYmFsOgogIHNtdHBfc21hcnRob3N0OiAibWFpbC5leGFtcGxlLm9y
Zzo1ODciCiAgc210cF9mcm9tOiAidG9tQGV4YW1wbGUub3JnIgogIHNtdHBfYXV0aF91c2VybmFt
ZTogInRvbUBleGFtcGxlLm9yZyIKICBzbXRwX2F1dGhfcGFzc3dvcmRfZmlsZToga2V5cy9hbGVy
dHMtbWFpbApyb3V0ZToKICByZWNlaXZlcjogcGVvcGxlCiAgIyBXaGF0IGlzIHdyb25nIHdpdGgg
b25lIHRoaW5nIGlzIG9uZSBtZXNzYWdlLgogIGdyb3VwX2J5OiBbYWxlcnRuYW1lLCByaWcsIGlu
c3RhbmNlXQogIGdyb3VwX3dhaXQ6IDMwcwogIGdyb3VwX2ludGVydmFsOiA1bQogIHJlcGVhdF9p
bnRlcnZhbDogMjE2MDBzCmluaGliaXRfcnVsZXM6CiAgIyBBIHJpZyB0aGF0IGlzIG9mZiBoYXMg
bm8gc2VydmVyczogdGhhdCBpcyBvbmUgbWVzc2FnZSwgdG9vLgogIC0gc291cmNlX21hdGNoZXJz
OiBbJ2FsZXJ0bmFtZT0iUmlnVW5yZWFjaGFibGUiJ10KICAgIHRhcmdldF9tYXRjaGVyczogWydh
bGVydG5hbWUhPSJSaWdVbnJlYWNoYWJsZSInXQogICAgZXF1YWw6IFtyaWddCnJlY2VpdmVyczoK
ICAtIG5hbWU6IHBlb3BsZQogICAgZW1haWxfY29uZmlnczoKICAgICAgLSB0bzogInRvbUBleGFt
cGxlLm9yZyIKICAgICAgICBzZW5kX3Jlc29sdmVkOiB0cnVlCiAgICB3ZWJob29rX2NvbmZpZ3M6
CiAgICAgIC0gdXJsOiAiaHR0cHM6Ly9udGZ5Lmxhbi9ob3VzZT90cGw9MSZ0PSU3QiU3QiUyMC5z
dGF0dXMlMjAlN0QlN0QlM0ElMjAlN0IlN0IlMjAuZ3JvdXBMYWJlbHMuYWxlcnRuYW1lJTIwJTdE
JTdEJm09JTdCJTdCJTIwcmFuZ2UlMjAuYWxlcnRzJTIwJTdEJTdEJTdCJTdCJTIwLmFubm90YXRp
b25zLnN1bW1hcnklMjAlN0QlN0QuJTIwJTdCJTdCJTIwLmFubm90YXRpb25zLmhlbHAlMjAlN0Ql
N0QuJTBBJTdCJTdCJTIwZW5kJTIwJTdEJTdEIgogICAgICAgIHNlbmRfcmVzb2x2ZWQ6IHRydWUK
ICAgICAgICBtYXhfYWxlcnRzOiAyMAogICAgICAgIGh0dHBfY29uZmlnOgogICAgICAgICAgYXV0
aG9yaXphdGlvbjoge2NyZWRlbnRpYWxzX2ZpbGU6IGtleXMvYWxlcnRzLW50Znl9CiAgICAgIC0g
dXJsOiAiaHR0cDovLzE5Mi4wLjIuOTo4MDgwL2hvb2s/ZnJvbT1hdHRpYyIKICAgICAgICBzZW5k
X3Jlc29sdmVkOiB0cnVlCiAgICAgICAgbWF4X2FsZXJ0czogMjAK
END
put_file /etc/llamaherd/monitoring.new/keys/box.chat /etc/llamaherd/monitoring.new/keys 0600 llamaherd-monitor <<'END'
YSBrZXk=
END

refused() {
    rm -rf "$new"
    echo "$1; what ran before still does" >&2
    exit 1
}
said=$(promtool check config "$new/prometheus.yml" 2>&1) || {
    printf '%s\n' "$said" | grep -v SUCCESS | head -n 5 | cut -c -300 >&2
    refused "Prometheus does not take this configuration"
}
said=$(amtool check-config "$new/alertmanager.yml" 2>&1) || {
    printf '%s\n' "$said" | grep -iv success | head -n 5 | cut -c -300 >&2
    refused "Alertmanager does not take this configuration"
}
[ ! -d /etc/llamaherd/monitoring ] || mv -T /etc/llamaherd/monitoring "$old" || exit 1
mv -T "$new" /etc/llamaherd/monitoring || exit 1
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
put_file /etc/systemd/system/llamaherd-prometheus.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KW1VuaXRdCkRlc2NyaXB0aW9uPVdoYXQgd2F0Y2hlcyB0aGUgZmxlZXQK
V2FudHM9bmV0d29yay1vbmxpbmUudGFyZ2V0CkFmdGVyPW5ldHdvcmstb25saW5lLnRhcmdldApT
dGFydExpbWl0SW50ZXJ2YWxTZWM9MAoKW1NlcnZpY2VdCkV4ZWNTdGFydD0vdXNyL2Jpbi9wcm9t
ZXRoZXVzIC0tY29uZmlnLmZpbGU9L2V0Yy9sbGFtYWhlcmQvbW9uaXRvcmluZy9wcm9tZXRoZXVz
LnltbCAtLXN0b3JhZ2UudHNkYi5wYXRoPS92YXIvbGliL2xsYW1haGVyZC1tb25pdG9yaW5nL3By
b21ldGhldXMgLS1zdG9yYWdlLnRzZGIucmV0ZW50aW9uLnRpbWU9OTBkIC0td2ViLmxpc3Rlbi1h
ZGRyZXNzPTEyNy4wLjAuMTo5MDkwCkV4ZWNSZWxvYWQ9L2Jpbi9raWxsIC1IVVAgJE1BSU5QSUQK
VGltZW91dFN0b3BTZWM9NjAKUmVzdGFydD1hbHdheXMKUmVzdGFydFNlYz01CkVudmlyb25tZW50
PUxMQU1BSEVSRF9TUEVDPWZiMmQ2Y2FjNWEwNQoKVXNlcj1sbGFtYWhlcmQtbW9uaXRvcgpTdGF0
ZURpcmVjdG9yeT1sbGFtYWhlcmQtbW9uaXRvcmluZy9wcm9tZXRoZXVzClN0YXRlRGlyZWN0b3J5
TW9kZT0wNzAwCldvcmtpbmdEaXJlY3Rvcnk9L3Zhci9saWIvbGxhbWFoZXJkLW1vbml0b3Jpbmcv
cHJvbWV0aGV1cwpMaW1pdE5PRklMRT02NTUzNgpQcm90ZWN0SG9tZT15ZXMKUHJvdGVjdFByb2M9
aW52aXNpYmxlClJlc3RyaWN0QWRkcmVzc0ZhbWlsaWVzPUFGX0lORVQgQUZfSU5FVDYgQUZfVU5J
WApVTWFzaz0wMDc3CkNhcGFiaWxpdHlCb3VuZGluZ1NldD0KTm9OZXdQcml2aWxlZ2VzPXllcwpE
ZXZpY2VQb2xpY3k9Y2xvc2VkCkxvY2tQZXJzb25hbGl0eT15ZXMKUHJpdmF0ZURldmljZXM9eWVz
ClByaXZhdGVUbXA9eWVzClByb3RlY3RDbG9jaz15ZXMKUHJvdGVjdENvbnRyb2xHcm91cHM9eWVz
ClByb3RlY3RIb3N0bmFtZT15ZXMKUHJvdGVjdEtlcm5lbExvZ3M9eWVzClByb3RlY3RLZXJuZWxN
b2R1bGVzPXllcwpQcm90ZWN0S2VybmVsVHVuYWJsZXM9eWVzClByb3RlY3RTeXN0ZW09c3RyaWN0
ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3ROYW1lc3BhY2VzPXllcwpSZXN0cmljdFJlYWx0aW1lPXll
cwpSZXN0cmljdFNVSURTR0lEPXllcwpTeXN0ZW1DYWxsQXJjaGl0ZWN0dXJlcz1uYXRpdmUKU3lz
dGVtQ2FsbEVycm9yTnVtYmVyPUVQRVJNClN5c3RlbUNhbGxGaWx0ZXI9QHN5c3RlbS1zZXJ2aWNl
CgpbSW5zdGFsbF0KV2FudGVkQnk9bXVsdGktdXNlci50YXJnZXQK
END
put_file /etc/systemd/system/llamaherd-alertmanager.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBib3hgOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KW1VuaXRdCkRlc2NyaXB0aW9uPVRlbGxzIHBlb3BsZSB3aGF0IGlzIHdy
b25nIHdpdGggdGhlIGZsZWV0CldhbnRzPW5ldHdvcmstb25saW5lLnRhcmdldApBZnRlcj1uZXR3
b3JrLW9ubGluZS50YXJnZXQKU3RhcnRMaW1pdEludGVydmFsU2VjPTAKCltTZXJ2aWNlXQpFeGVj
U3RhcnQ9L3Vzci9iaW4vcHJvbWV0aGV1cy1hbGVydG1hbmFnZXIgLS1jb25maWcuZmlsZT0vZXRj
L2xsYW1haGVyZC9tb25pdG9yaW5nL2FsZXJ0bWFuYWdlci55bWwgLS1zdG9yYWdlLnBhdGg9L3Zh
ci9saWIvbGxhbWFoZXJkLW1vbml0b3JpbmcvYWxlcnRtYW5hZ2VyIC0td2ViLmxpc3Rlbi1hZGRy
ZXNzPTEyNy4wLjAuMTo5MDkzIC0tY2x1c3Rlci5saXN0ZW4tYWRkcmVzcz0KUmVzdGFydD1hbHdh
eXMKUmVzdGFydFNlYz01CkVudmlyb25tZW50PUxMQU1BSEVSRF9TUEVDPWIwMzhmYzY2OGE3NAoK
VXNlcj1sbGFtYWhlcmQtbW9uaXRvcgpTdGF0ZURpcmVjdG9yeT1sbGFtYWhlcmQtbW9uaXRvcmlu
Zy9hbGVydG1hbmFnZXIKU3RhdGVEaXJlY3RvcnlNb2RlPTA3MDAKV29ya2luZ0RpcmVjdG9yeT0v
dmFyL2xpYi9sbGFtYWhlcmQtbW9uaXRvcmluZy9hbGVydG1hbmFnZXIKUHJvdGVjdEhvbWU9eWVz
ClByb3RlY3RQcm9jPWludmlzaWJsZQpSZXN0cmljdEFkZHJlc3NGYW1pbGllcz1BRl9JTkVUIEFG
X0lORVQ2IEFGX1VOSVgKVU1hc2s9MDA3NwpDYXBhYmlsaXR5Qm91bmRpbmdTZXQ9Ck5vTmV3UHJp
dmlsZWdlcz15ZXMKRGV2aWNlUG9saWN5PWNsb3NlZApMb2NrUGVyc29uYWxpdHk9eWVzClByaXZh
dGVEZXZpY2VzPXllcwpQcml2YXRlVG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVzClByb3RlY3RDb250
cm9sR3JvdXBzPXllcwpQcm90ZWN0SG9zdG5hbWU9eWVzClByb3RlY3RLZXJuZWxMb2dzPXllcwpQ
cm90ZWN0S2VybmVsTW9kdWxlcz15ZXMKUHJvdGVjdEtlcm5lbFR1bmFibGVzPXllcwpQcm90ZWN0
U3lzdGVtPXN0cmljdApSZW1vdmVJUEM9eWVzClJlc3RyaWN0TmFtZXNwYWNlcz15ZXMKUmVzdHJp
Y3RSZWFsdGltZT15ZXMKUmVzdHJpY3RTVUlEU0dJRD15ZXMKU3lzdGVtQ2FsbEFyY2hpdGVjdHVy
ZXM9bmF0aXZlClN5c3RlbUNhbGxFcnJvck51bWJlcj1FUEVSTQpTeXN0ZW1DYWxsRmlsdGVyPUBz
eXN0ZW0tc2VydmljZQoKW0luc3RhbGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFyZ2V0Cg==
END

systemctl daemon-reload
systemctl -q enable llamaherd-prometheus.service llamaherd-alertmanager.service || exit 1

# What the Prometheus that runs has read, as a rule of it says.
prometheus_read() {
    curl -q -s --noproxy '*' --max-time 5 'http://127.0.0.1:9090/api/v1/rules?type=record' 2>/dev/null |
        grep -o '"spec":"[0-9a-f]*"' | cut -d '"' -f 4 | head -n 1
}
# Whether what runs has read what lies there. Prometheus reads all that it remembers before it answers.
settled() {
    for _ in $(seq 240); do
        [ "$(prometheus_read)" != 593b0d30e027 ] ||
            ! curl -q -s -f --noproxy '*' --max-time 5 -o /dev/null http://127.0.0.1:9093/-/ready || return 0
        sleep 0.5
    done
    return 1
}
back() {
    echo "what watches does not run with this; $1" >&2
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-prometheus.service -u llamaherd-alertmanager.service 2>/dev/null | cut -c -200 >&2
    if [ -d "$old" ]; then
        rm -rf /etc/llamaherd/monitoring
        mv -T "$old" /etc/llamaherd/monitoring
        systemctl restart llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
        echo "what was read before is read again" >&2
    else
        systemctl stop llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
    fi
    exit 1
}
systemctl reset-failed llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null
systemctl restart llamaherd-prometheus.service llamaherd-alertmanager.service 2>/dev/null || back "it does not start"
settled || back "it does not say that it has read it"
rm -rf "$old"
