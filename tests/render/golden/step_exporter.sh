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
if ! [ -x /usr/bin/prometheus-node-exporter ] || ! id -u llamaherd-exporter >/dev/null 2>&1; then
    echo "the exporter's package or its user is not there yet: \`herd up\` without --only brings both" >&2
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
YWJsZS1yZXN0YXJ0cy1tZXRyaWNzIC0tY29sbGVjdG9yLnRleHRmaWxlIC0tY29sbGVjdG9yLnRl
eHRmaWxlLmRpcmVjdG9yeT0vdmFyL2xpYi9sbGFtYWhlcmQtZmlndXJlcwpSZXN0YXJ0PWFsd2F5
cwpSZXN0YXJ0U2VjPTUKRW52aXJvbm1lbnQ9TExBTUFIRVJEX1NQRUM9N2FiNjU2YjlkZWNmCgpV
c2VyPWxsYW1haGVyZC1leHBvcnRlcgojIFdobyB3YXRjaGVzLCBhbmQgdGhpcyBob3N0IGl0c2Vs
Zjogbm9ib2R5IGVsc2UuCklQQWRkcmVzc0Rlbnk9YW55CklQQWRkcmVzc0FsbG93PTE5Mi4wLjIu
MSBsb2NhbGhvc3QKUHJvdGVjdEhvbWU9cmVhZC1vbmx5ClJlc3RyaWN0QWRkcmVzc0ZhbWlsaWVz
PUFGX0lORVQgQUZfSU5FVDYgQUZfVU5JWCBBRl9ORVRMSU5LCkNhcGFiaWxpdHlCb3VuZGluZ1Nl
dD0KTm9OZXdQcml2aWxlZ2VzPXllcwpEZXZpY2VQb2xpY3k9Y2xvc2VkCkxvY2tQZXJzb25hbGl0
eT15ZXMKUHJpdmF0ZURldmljZXM9eWVzClByaXZhdGVUbXA9eWVzClByb3RlY3RDbG9jaz15ZXMK
UHJvdGVjdENvbnRyb2xHcm91cHM9eWVzClByb3RlY3RIb3N0bmFtZT15ZXMKUHJvdGVjdEtlcm5l
bExvZ3M9eWVzClByb3RlY3RLZXJuZWxNb2R1bGVzPXllcwpQcm90ZWN0S2VybmVsVHVuYWJsZXM9
eWVzClByb3RlY3RTeXN0ZW09c3RyaWN0ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3ROYW1lc3BhY2Vz
PXllcwpSZXN0cmljdFJlYWx0aW1lPXllcwpSZXN0cmljdFNVSURTR0lEPXllcwpTeXN0ZW1DYWxs
QXJjaGl0ZWN0dXJlcz1uYXRpdmUKU3lzdGVtQ2FsbEVycm9yTnVtYmVyPUVQRVJNClN5c3RlbUNh
bGxGaWx0ZXI9QHN5c3RlbS1zZXJ2aWNlCgpbSW5zdGFsbF0KV2FudGVkQnk9bXVsdGktdXNlci50
YXJnZXQK
END
put_file /opt/llamaherd/libexec/figures /opt/llamaherd/libexec 0755 root <<'END'
IyEvdXNyL2Jpbi9weXRob24zIC1JCiIiIldyaXRlcyB3aGF0IHRoZSBleHBvcnRlciBoYXMgbm8g
bmFtZSBmb3I6IEdQVXMgYnkgbnZpZGlhLXNtaSwgd2hhdCB0aGUga2VybmVsIHNhaWQgb2YgdGhl
bSwgd2hlbiBhIGNlcnRpZmljYXRlIGVuZHMuCgogICAgZmlndXJlcyBGSUxFIFstLWdwdXNdIFst
LWNlcnRpZmljYXRlIFBFTV0KClJ1biBieSBhIHRpbWVyLiBUaGUgZmlsZSBpcyB3cml0dGVuIGJl
c2lkZSBpdHMgcGxhY2UgYW5kIHJlbmFtZWQsIHNvIHRoYXQgbm9ib2R5IHJlYWRzIGhhbGYgb2Yg
aXQuCiIiIgoKIyBGb3IgUHl0aG9uIDMuMTAgYW5kIGl0cyBzdGFuZGFyZCBsaWJyYXJ5IGFsb25l
LgppbXBvcnQgYXJncGFyc2UKaW1wb3J0IGNzdgppbXBvcnQgb3MKaW1wb3J0IHJlCmltcG9ydCBz
c2wKaW1wb3J0IHN1YnByb2Nlc3MKaW1wb3J0IHRpbWUKZnJvbSBjb2xsZWN0aW9ucy5hYmMgaW1w
b3J0IEl0ZXJhdG9yCmZyb20gY29udGV4dGxpYiBpbXBvcnQgc3VwcHJlc3MKZnJvbSBwYXRobGli
IGltcG9ydCBQYXRoCgpQQVRIID0gb3MuZW52aXJvbi5nZXQoIlBBVEgiLCAiL3Vzci9iaW46L2Jp
biIpICsgIjovdXNyL3NiaW46L3Vzci9saWIvd3NsL2xpYiIKTE9OR0VTVCA9IDEgPDwgMjAKIiIi
Qnl0ZXMgb2Ygd2hhdCBhIHByb2dyYW0gbWF5IHNheS4iIiIKQVNLRUQgPSAoCiAgICAqKCJ1dWlk
IiwgInBjaS5idXNfaWQiLCAidGVtcGVyYXR1cmUuZ3B1IiwgInBvd2VyLmRyYXciLCAicG93ZXIu
bGltaXQiLCAibWVtb3J5LnVzZWQiLCAibWVtb3J5LnRvdGFsIiksCiAgICAqKCJ1dGlsaXphdGlv
bi5ncHUiLCAiZmFuLnNwZWVkIiwgImNsb2Nrcy5zbSIsICJlY2MuZXJyb3JzLnVuY29ycmVjdGVk
LnZvbGF0aWxlLnRvdGFsIiksCikKUkVBU09OUyA9ICgiY2xvY2tzX2V2ZW50X3JlYXNvbnMuYWN0
aXZlIiwgImNsb2Nrc190aHJvdHRsZV9yZWFzb25zLmFjdGl2ZSIpCiIiIkJ5IGVpdGhlciBuYW1l
OiBhIGRyaXZlciB0aGF0IGxhY2tzIG9uZSBmaWVsZCBhbnN3ZXJzIHRvIG5vbmUuIiIiCkZJR1VS
RVMgPSB7CiAgICAidGVtcGVyYXR1cmUuZ3B1IjogKCJ0ZW1wZXJhdHVyZV9jZWxzaXVzIiwgMSks
CiAgICAicG93ZXIuZHJhdyI6ICgicG93ZXJfd2F0dHMiLCAxKSwKICAgICJwb3dlci5saW1pdCI6
ICgicG93ZXJfbGltaXRfd2F0dHMiLCAxKSwKICAgICJtZW1vcnkudXNlZCI6ICgibWVtb3J5X3Vz
ZWRfYnl0ZXMiLCAxIDw8IDIwKSwKICAgICJtZW1vcnkudG90YWwiOiAoIm1lbW9yeV90b3RhbF9i
eXRlcyIsIDEgPDwgMjApLAogICAgInV0aWxpemF0aW9uLmdwdSI6ICgidXRpbGl6YXRpb25fcmF0
aW8iLCAwLjAxKSwKICAgICJmYW4uc3BlZWQiOiAoImZhbl9yYXRpbyIsIDAuMDEpLAogICAgImNs
b2Nrcy5zbSI6ICgiY2xvY2tfaGVydHoiLCAxZTYpLAogICAgImVjYy5lcnJvcnMudW5jb3JyZWN0
ZWQudm9sYXRpbGUudG90YWwiOiAoImVjY191bmNvcnJlY3RlZF9lcnJvcnMiLCAxKSwKfQoiIiJX
aGF0IGVhY2ggZmllbGQgaXMgY2FsbGVkIGhlcmUsIGFuZCB3aGF0IG9mIGl0cyB1bml0IG9uZSBv
ZiBvdXJzIGlzLiIiIgpUSFJPVFRMRUQgPSB7InN3X3RoZXJtYWwiOiAweDIwLCAiaHdfdGhlcm1h
bCI6IDB4NDAsICJod19wb3dlcl9icmFrZSI6IDB4ODB9CiIiIkJpdHMgb2YgTlZNTCdzIGNsb2Nr
cyBldmVudCByZWFzb25zLiBBIHBvd2VyIGxpbWl0IG9mIG91cnMgaXMgbm9uZSBvZiB0aGVtICgw
eDQpLiIiIgpYSUQgPSByZS5jb21waWxlKHIiXihcZCspKD86XC5cZCspPyAuKk5WUk06IFhpZCBc
KFBDSTooWzAtOUEtRmEtZjouXXsxLDIwfSlcKTogKFxkezEsNH0pXGIiKQoKCmRlZiBzYWlkKCpj
b21tYW5kOiBzdHIpIC0+IHN0cjoKICAgICIiIldoYXQgYSBwcm9ncmFtIHNheXM7IG5vdGhpbmcg
d2hlcmUgaXQgZmFpbHMsIGhhbmdzLCBvciBpcyBub3QgdGhlcmUuIiIiCiAgICB3aXRoIHN1cHBy
ZXNzKE9TRXJyb3IsIHN1YnByb2Nlc3MuU3VicHJvY2Vzc0Vycm9yKToKICAgICAgICBlbnYgPSB7
IlBBVEgiOiBQQVRILCAiTENfQUxMIjogIkMifQogICAgICAgIGRvbmUgPSBzdWJwcm9jZXNzLnJ1
bihjb21tYW5kLCBjYXB0dXJlX291dHB1dD1UcnVlLCB0aW1lb3V0PTIwLCBlbnY9ZW52LCBjaGVj
az1GYWxzZSkKICAgICAgICBpZiBkb25lLnJldHVybmNvZGUgPT0gMDoKICAgICAgICAgICAgcmV0
dXJuIGRvbmUuc3Rkb3V0WzpMT05HRVNUXS5kZWNvZGUoZXJyb3JzPSJyZXBsYWNlIikKICAgIHJl
dHVybiAiIgoKCmRlZiBmaWd1cmUobmFtZTogc3RyLCBsYWJlbHM6IHN0ciwgdmFsdWU6IG9iamVj
dCkgLT4gc3RyOgogICAgIiIiQSBsaW5lIG9mIHRoZSBmaWxlLiIiIgogICAgcmV0dXJuIGYibGxh
bWFoZXJkX3tuYW1lfSIgKyAieyIgKyBsYWJlbHMgKyAifSIgKyBmIiB7dmFsdWV9IgoKCmRlZiBn
cHVzKHRleHQ6IHN0cikgLT4gSXRlcmF0b3Jbc3RyXToKICAgICIiIlRoZSBsaW5lcyBvZiBhbGwg
R1BVcywgZnJvbSB0aGUgYW5zd2VyIG9mIG52aWRpYS1zbWk6IGZpZWxkcyBhcyBhc2tlZCwgdGhl
biB0aGUgcmVhc29ucy4iIiIKICAgIHJvd3MgPSBbcm93IGZvciByb3cgaW4gY3N2LnJlYWRlcih0
ZXh0LnNwbGl0bGluZXMoKSwgc2tpcGluaXRpYWxzcGFjZT1UcnVlKSBpZiBsZW4ocm93KSA9PSBs
ZW4oQVNLRUQpICsgMV0KICAgIHJvd3MgPSBbcm93IGZvciByb3cgaW4gcm93cyBpZiByZS5mdWxs
bWF0Y2gociJHUFUtWzAtOWEtZi1dezgsNTB9Iiwgcm93WzBdKV0KICAgIHJvd3MgPSBzb3J0ZWQo
KHJvdyBmb3Igcm93IGluIHJvd3MgaWYgcmUuZnVsbG1hdGNoKHIiWzAtOUEtRjouXXs3LDIwfSIs
IHJvd1sxXSkpLCBrZXk9bGFtYmRhIHJvdzogcm93WzFdKQogICAgeWllbGQgZiJsbGFtYWhlcmRf
Z3B1cyB7bGVuKHJvd3MpfSIKICAgIGZvciBudW1iZXIsIHJvdyBpbiBlbnVtZXJhdGUocm93cyk6
CiAgICAgICAgbGFiZWxzID0gZidncHU9Intyb3dbMF19IixwY2k9Intyb3dbMV19IixpbmRleD0i
e251bWJlcn0iJwogICAgICAgIGZvciBmaWVsZCwgdmFsdWUgaW4gemlwKEFTS0VELCByb3dbOi0x
XSwgc3RyaWN0PVRydWUpOgogICAgICAgICAgICBpZiBmaWVsZCBpbiBGSUdVUkVTIGFuZCByZS5m
dWxsbWF0Y2gociJcZHsxLDl9KFwuXGR7MSw2fSk/IiwgdmFsdWUpOgogICAgICAgICAgICAgICAg
bmFtZSwgdW5pdCA9IEZJR1VSRVNbZmllbGRdCiAgICAgICAgICAgICAgICB5aWVsZCBmaWd1cmUo
ZiJncHVfe25hbWV9IiwgbGFiZWxzLCBmIntmbG9hdCh2YWx1ZSkgKiB1bml0Oi4xNWd9IikKICAg
ICAgICBpZiByZS5mdWxsbWF0Y2gociIweFswLTlBLUZhLWZdezEsMTZ9Iiwgcm93Wy0xXSk6CiAg
ICAgICAgICAgIGZvciB3aHksIGJpdCBpbiBUSFJPVFRMRUQuaXRlbXMoKToKICAgICAgICAgICAg
ICAgIHlpZWxkIGZpZ3VyZSgiZ3B1X3Rocm90dGxlZCIsIGYne2xhYmVsc30sd2h5PSJ7d2h5fSIn
LCBpbnQoYm9vbChpbnQocm93Wy0xXSwgMTYpICYgYml0KSkpCgoKZGVmIHhpZHModGV4dDogc3Ry
KSAtPiBJdGVyYXRvcltzdHJdOgogICAgIiIiV2hlbiB0aGUga2VybmVsIGxhc3QgdG9sZCBlYWNo
IGVycm9yIG9mIGEgR1BVLCBieSBsaW5lcyBvZiB0aGUgam91cm5hbCB0aGF0IGJlZ2luIHdpdGgg
c2Vjb25kcy4iIiIKICAgIGxhc3QgPSB7KGZvdW5kWzJdLCBmb3VuZFszXSk6IGZvdW5kWzFdIGZv
ciBsaW5lIGluIHRleHQuc3BsaXRsaW5lcygpIGlmIChmb3VuZCA6PSBYSUQubWF0Y2gobGluZSkp
fQogICAgZm9yIChwY2ksIHhpZCksIHNlY29uZHMgaW4gc29ydGVkKGxhc3QuaXRlbXMoKSk6CiAg
ICAgICAgeWllbGQgZmlndXJlKCJncHVfeGlkX2xhc3Rfc2Vjb25kcyIsIGYncGNpPSJ7cGNpfSIs
eGlkPSJ7eGlkfSInLCBzZWNvbmRzKQoKCmRlZiBjZXJ0aWZpY2F0ZSh0ZXh0OiBzdHIpIC0+IEl0
ZXJhdG9yW3N0cl06CiAgICAiIiJXaGVuIGl0IGVuZHMsIGJ5IHdoYXQgb3BlbnNzbCBzYXlzLiIi
IgogICAgd2l0aCBzdXBwcmVzcyhWYWx1ZUVycm9yKToKICAgICAgICBpZiBlbmRzIDo9IHJlLm1h
dGNoKHIibm90QWZ0ZXI9KC4qKSIsIHRleHQpOgogICAgICAgICAgICB5aWVsZCBmImxsYW1haGVy
ZF9jZXJ0aWZpY2F0ZV9lbmRfc2Vjb25kcyB7c3NsLmNlcnRfdGltZV90b19zZWNvbmRzKGVuZHNb
MV0uc3RyaXAoKSl9IgoKCmRlZiBsaW5lcyhvZl9ncHVzOiBib29sLCBwZW06IHN0ciB8IE5vbmUp
IC0+IEl0ZXJhdG9yW3N0cl06CiAgICAiIiJBbGwgZmlndXJlcyBvZiB0aGlzIGhvc3QuIiIiCiAg
ICBpZiBvZl9ncHVzOgogICAgICAgIGFza2VkID0gKGYiLS1xdWVyeS1ncHU9eycsJy5qb2luKCgq
QVNLRUQsIHJlYXNvbikpfSIgZm9yIHJlYXNvbiBpbiBSRUFTT05TKQogICAgICAgIGFuc3dlcnMg
PSAoc2FpZCgibnZpZGlhLXNtaSIsIHF1ZXJ5LCAiLS1mb3JtYXQ9Y3N2LG5vaGVhZGVyLG5vdW5p
dHMiKSBmb3IgcXVlcnkgaW4gYXNrZWQpCiAgICAgICAgeWllbGQgZnJvbSBncHVzKG5leHQoZmls
dGVyKE5vbmUsIGFuc3dlcnMpLCAiIikpCiAgICAgICAgIyAtZyBlbmRzIHdpdGggMSB3aGVyZSB0
aGVyZSBpcyBub25lLgogICAgICAgIGtlcm5lbCA9ICgiam91cm5hbGN0bCIsICItayIsICItcSIs
ICItbyIsICJzaG9ydC11bml4IiwgIi0tbm8tcGFnZXIiLCAiLW4iLCAiMTAwMCIsICItLXNpbmNl
PS0xaCIpCiAgICAgICAgeWllbGQgZnJvbSB4aWRzKHNhaWQoKmtlcm5lbCwgIi1nIiwgIk5WUk06
IFhpZCIpKQogICAgaWYgcGVtOgogICAgICAgIHlpZWxkIGZyb20gY2VydGlmaWNhdGUoc2FpZCgi
b3BlbnNzbCIsICJ4NTA5IiwgIi1ub291dCIsICItZW5kZGF0ZSIsICItaW4iLCBwZW0pKQogICAg
eWllbGQgZiJsbGFtYWhlcmRfZmlndXJlc19zZWNvbmRzIHtpbnQodGltZS50aW1lKCkpfSIKCgpk
ZWYgbWFpbigpIC0+IE5vbmU6CiAgICAiIiJXaGF0IHRoZSBjb21tYW5kIGxpbmUgYXNrcyBmb3Iu
IiIiCiAgICBwYXJzZXIgPSBhcmdwYXJzZS5Bcmd1bWVudFBhcnNlcigpCiAgICBwYXJzZXIuYWRk
X2FyZ3VtZW50KCJmaWxlIikKICAgIHBhcnNlci5hZGRfYXJndW1lbnQoIi0tZ3B1cyIsIGFjdGlv
bj0ic3RvcmVfdHJ1ZSIpCiAgICBwYXJzZXIuYWRkX2FyZ3VtZW50KCItLWNlcnRpZmljYXRlIikK
ICAgIGNob3NlbiA9IHBhcnNlci5wYXJzZV9hcmdzKCkKICAgIHRleHQgPSAiIi5qb2luKGYie2xp
bmV9XG4iIGZvciBsaW5lIGluIGxpbmVzKGNob3Nlbi5ncHVzLCBjaG9zZW4uY2VydGlmaWNhdGUp
KQogICAgIyBUaGUgZXhwb3J0ZXIgcmVhZHMgd2hhdCBlbmRzIHdpdGggLnByb20uCiAgICBiZXNp
ZGUgPSBQYXRoKGYie2Nob3Nlbi5maWxlfS5uZXciKQogICAgYmVzaWRlLndyaXRlX3RleHQodGV4
dCwgZW5jb2Rpbmc9InV0Zi04IikKICAgIGJlc2lkZS5jaG1vZCgwbzY0NCkKICAgIGJlc2lkZS5y
ZXBsYWNlKGNob3Nlbi5maWxlKQoKCmlmIF9fbmFtZV9fID09ICJfX21haW5fXyI6CiAgICBtYWlu
KCkK
END
put_file /etc/systemd/system/llamaherd-figures.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KW1VuaXRdCkRlc2NyaXB0aW9uPUZpZ3VyZXMgb2YgdGhpcyBob3N0IHRo
YXQgaXRzIGV4cG9ydGVyIGRvZXMgbm90IGtub3cKCltTZXJ2aWNlXQpUeXBlPW9uZXNob3QKRXhl
Y1N0YXJ0PS9vcHQvbGxhbWFoZXJkL2xpYmV4ZWMvZmlndXJlcyAvdmFyL2xpYi9sbGFtYWhlcmQt
ZmlndXJlcy9sbGFtYWhlcmQucHJvbSAtLWdwdXMKVGltZW91dFN0YXJ0U2VjPTkwClN0YXRlRGly
ZWN0b3J5PWxsYW1haGVyZC1maWd1cmVzClN0YXRlRGlyZWN0b3J5TW9kZT0wNzU1CkNhcGFiaWxp
dHlCb3VuZGluZ1NldD1DQVBfREFDX1JFQURfU0VBUkNICk5vTmV3UHJpdmlsZWdlcz15ZXMKTG9j
a1BlcnNvbmFsaXR5PXllcwpQcml2YXRlTmV0d29yaz15ZXMKUHJpdmF0ZVRtcD15ZXMKIyBXaGF0
IHByb3RlY3RzIHRoZSBjbG9jayB3b3VsZCBhbHNvIHRha2UgdGhlIEdQVXMgYXdheS4KUHJvdGVj
dENvbnRyb2xHcm91cHM9eWVzClByb3RlY3RIb21lPXllcwpQcm90ZWN0SG9zdG5hbWU9eWVzClBy
b3RlY3RLZXJuZWxNb2R1bGVzPXllcwpQcm90ZWN0U3lzdGVtPXN0cmljdApSZXN0cmljdEFkZHJl
c3NGYW1pbGllcz1BRl9ORVRMSU5LIEFGX1VOSVgKUmVzdHJpY3ROYW1lc3BhY2VzPXllcwpSZXN0
cmljdFJlYWx0aW1lPXllcwpSZXN0cmljdFNVSURTR0lEPXllcwpTeXN0ZW1DYWxsQXJjaGl0ZWN0
dXJlcz1uYXRpdmUKU3lzdGVtQ2FsbEVycm9yTnVtYmVyPUVQRVJNClN5c3RlbUNhbGxGaWx0ZXI9
QHN5c3RlbS1zZXJ2aWNlClVNYXNrPTAwMjIK
END
put_file /etc/systemd/system/llamaherd-figures.timer /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgZmxlZXQueWFtbCwg
bm90IHRoaXMgZmlsZS4KW1VuaXRdCkRlc2NyaXB0aW9uPUZpZ3VyZXMgb2YgdGhpcyBob3N0IHRo
YXQgaXRzIGV4cG9ydGVyIGRvZXMgbm90IGtub3cKCltUaW1lcl0KT25BY3RpdmVTZWM9MXMKT25V
bml0SW5hY3RpdmVTZWM9MzBzCkFjY3VyYWN5U2VjPTFzCgpbSW5zdGFsbF0KV2FudGVkQnk9dGlt
ZXJzLnRhcmdldAo=
END

systemctl daemon-reload
systemctl -q enable llamaherd-exporter.service || exit 1
systemctl -q enable llamaherd-figures.timer && systemctl restart llamaherd-figures.timer || exit 1
systemctl reset-failed llamaherd-exporter.service 2>/dev/null
systemctl restart llamaherd-exporter.service || exit 1
sleep 1
if [ "$(systemctl is-active llamaherd-exporter.service)" != active ]; then
    journalctl -q -o cat --no-pager -n 10 -u llamaherd-exporter.service | cut -c -200 >&2
    echo "the exporter does not run" >&2
    exit 1
fi
