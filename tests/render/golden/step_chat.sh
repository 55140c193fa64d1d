# The page that people chat on: its image first, then everything else, and what served before where it does not come up.
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
hold 8 host 3600 'the chat page' || exit 1
# What we wrote last of files that are made of keys: by that, somebody's change is told from one of keys, which are in no
# plan. It is forgotten before they are written, so that what was cut off tells nothing. The host's lock is held.
forget_written() {
    rm -f /var/lib/llamaherd/written/"$1"
}
# $1 whose files; the files come after it.
note_written() (
    whose=$1
    shift
    umask 077
    mkdir -p /var/lib/llamaherd/written && cd /var/lib/llamaherd/written || exit 0
    # With a secret of this host: who reads a hash cannot try keys.
    [ -s .secret ] || { head -c 32 /dev/urandom >.new && mv -f .new .secret; } || exit 0
    for file; do
        printf '%s\t%s\n' "$(cat .secret "$file" | sha256sum | cut -d ' ' -f 1)" "$file"
    done >.new && mv -f .new "$whose"
)
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
image=registry.example/open-webui@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef
if ! docker image inspect "$image" >/dev/null 2>&1 && ! said=$(docker pull -q "$image" 2>&1); then
    printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "the image of the chat page cannot be fetched; what ran before still does" >&2
    exit 1
fi
install -d -m 0700 /etc/llamaherd/chat && install -d -m 0700 -o 2018725711 -g 2018725711 /var/lib/llamaherd-chat || exit 1
# What served is what ran before the first of the runs that did not come to their end: theirs were never seen healthy.
[ -e /etc/llamaherd/chat/untried ] || [ ! -f /etc/llamaherd/chat/compose.yaml ] || cp -p /etc/llamaherd/chat/compose.yaml /etc/llamaherd/chat/compose.yaml.old || exit 1
# Until it is healthy, the next run knows that this one did not come to its end.
: >/etc/llamaherd/chat/untried || exit 1
if ! [ -s /etc/llamaherd/chat/secret ]; then
    # Of this host alone: it signs who is logged in.
    (umask 077 && head -c 32 /dev/urandom | base64 | tr -d '\n' >/etc/llamaherd/chat/secret.part) &&
        chown 2018725711:2018725711 /etc/llamaherd/chat/secret.part && chmod 0400 /etc/llamaherd/chat/secret.part &&
        mv -f /etc/llamaherd/chat/secret.part /etc/llamaherd/chat/secret || exit 1
fi
forget_written chat
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
put_file /etc/llamaherd/chat/key /etc/llamaherd/chat 0400 2018725711 <<'END'
YSBrZXk=
END
put_file /etc/llamaherd/chat/compose.yaml /etc/llamaherd/chat 0600 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgdGhlIGdhdGV3YXkgb2YgcmlnIGBib3hgOiBjaGFu
Z2UgZmxlZXQueWFtbCwgbm90IHRoaXMgZmlsZS4KbmFtZTogbGxhbWFoZXJkLWNoYXQKc2Vydmlj
ZXM6CiAgcGFnZToKICAgIGltYWdlOiAicmVnaXN0cnkuZXhhbXBsZS9vcGVuLXdlYnVpQHNoYTI1
NjplZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZl
ZmVmZWZlZmVmIgogICAgcHVsbF9wb2xpY3k6IG1pc3NpbmcKICAgIGNvbnRhaW5lcl9uYW1lOiBs
bGFtYWhlcmQtY2hhdAogICAgIyBLZXlzIGFyZSByZWFkIGluc2lkZTogaW4gYXJndW1lbnRzIG9y
IGluIHRoZSBlbnZpcm9ubWVudCwgb3RoZXJzIHdvdWxkIHNlZSB0aGVtLgogICAgZW50cnlwb2lu
dDogWyIvYmluL3NoIiwgIi1jIiwgIk9QRU5BSV9BUElfS0VZUz1cIiQkKGNhdCAvcnVuL2xsYW1h
aGVyZC9rZXkpXCIgV0VCVUlfU0VDUkVUX0tFWT1cIiQkKGNhdCAvcnVuL2xsYW1haGVyZC9zZWNy
ZXQpXCIgZXhlYyBcIiQkQFwiIiwgIm9wZW4td2VidWkiXQogICAgY29tbWFuZDogWyJweXRob24z
IiwgIi1tIiwgInV2aWNvcm4iLCAib3Blbl93ZWJ1aS5tYWluOmFwcCIsICItLWhvc3QiLCAiMTI3
LjAuMC4xIiwgIi0tcG9ydCIsICIzMDAwIiwgIi0td29ya2VycyIsICIxIl0KICAgIHdvcmtpbmdf
ZGlyOiAvYXBwL2JhY2tlbmQKICAgIGVudmlyb25tZW50OiB7IkFJT0hUVFBfQ0xJRU5UX1RJTUVP
VVQiOiAiMzYwMCIsICJBTk9OWU1JWkVEX1RFTEVNRVRSWSI6ICJmYWxzZSIsICJEQVRBX0RJUiI6
ICIvZGF0YSIsICJERUZBVUxUX01PREVMUyI6ICJzbWFsbCIsICJET19OT1RfVFJBQ0siOiAidHJ1
ZSIsICJFTkFCTEVfT0xMQU1BX0FQSSI6ICJmYWxzZSIsICJFTkFCTEVfUEVSU0lTVEVOVF9DT05G
SUciOiAiZmFsc2UiLCAiRU5BQkxFX1NJR05VUCI6ICJmYWxzZSIsICJFTkFCTEVfVkVSU0lPTl9V
UERBVEVfQ0hFQ0siOiAiZmFsc2UiLCAiSE9NRSI6ICIvZGF0YSIsICJPRkZMSU5FX01PREUiOiAi
dHJ1ZSIsICJPUEVOQUlfQVBJX0JBU0VfVVJMUyI6ICJodHRwOi8vMTI3LjAuMC4xOjgwMDAvdjEi
LCAiU0NBUkZfTk9fQU5BTFlUSUNTIjogInRydWUiLCAiU1RBVElDX0RJUiI6ICIvdG1wL3N0YXRp
YyIsICJCWVBBU1NfTU9ERUxfQUNDRVNTX0NPTlRST0wiOiAidHJ1ZSIsICJERUZBVUxUX01PREVM
X01FVEFEQVRBIjogIntcImNhcGFiaWxpdGllc1wiOiB7XCJidWlsdGluX3Rvb2xzXCI6IGZhbHNl
fX0iLCAiRU5BQkxFX0ZPTExPV19VUF9HRU5FUkFUSU9OIjogImZhbHNlIiwgIkVOQUJMRV9UQUdT
X0dFTkVSQVRJT04iOiAiZmFsc2UiLCAiRU5BQkxFX1RJVExFX0dFTkVSQVRJT04iOiAiZmFsc2Ui
fQogICAgbGFiZWxzOgogICAgICBsbGFtYWhlcmQuc3BlYzogImI4YmMwYWI3MmRkOSIKICAgICAg
bGxhbWFoZXJkLnBvcnQ6ICIzMDAwIgogICAgdXNlcjogIjIwMTg3MjU3MTE6MjAxODcyNTcxMSIK
ICAgIHJlYWRfb25seTogdHJ1ZQogICAgY2FwX2Ryb3A6IFtBTExdCiAgICBzZWN1cml0eV9vcHQ6
IFsibm8tbmV3LXByaXZpbGVnZXM6dHJ1ZSJdCiAgICB0bXBmczogWyIvdG1wOnNpemU9MWcsbW9k
ZT0xNzc3Il0KICAgIHBpZHNfbGltaXQ6IDEwMjQKICAgIHVsaW1pdHM6IHtub2ZpbGU6IDE2Mzg0
fQogICAgIyBUaGUgZ2F0ZXdheSBtYXkgbGlzdGVuIG9uIHRoZSBob3N0J3Mgb3duIGxvb3BiYWNr
IGFsb25lLCBhbmQgc28gbWF5IHRoZSBwYWdlLgogICAgbmV0d29ya19tb2RlOiBob3N0CiAgICB2
b2x1bWVzOgogICAgICAtIHt0eXBlOiBiaW5kLCBzb3VyY2U6IC92YXIvbGliL2xsYW1haGVyZC1j
aGF0LCB0YXJnZXQ6IC9kYXRhLCBiaW5kOiB7Y3JlYXRlX2hvc3RfcGF0aDogZmFsc2V9fQogICAg
ICAtIHt0eXBlOiBiaW5kLCBzb3VyY2U6IC9ldGMvbGxhbWFoZXJkL2NoYXQva2V5LCB0YXJnZXQ6
IC9ydW4vbGxhbWFoZXJkL2tleSwgcmVhZF9vbmx5OiB0cnVlLCBiaW5kOiB7Y3JlYXRlX2hvc3Rf
cGF0aDogZmFsc2V9fQogICAgICAtIHt0eXBlOiBiaW5kLCBzb3VyY2U6IC9ldGMvbGxhbWFoZXJk
L2NoYXQvc2VjcmV0LCB0YXJnZXQ6IC9ydW4vbGxhbWFoZXJkL3NlY3JldCwgcmVhZF9vbmx5OiB0
cnVlLCBiaW5kOiB7Y3JlYXRlX2hvc3RfcGF0aDogZmFsc2V9fQogICAgaGVhbHRoY2hlY2s6CiAg
ICAgIHRlc3Q6IFsiQ01EIiwgInB5dGhvbjMiLCAiLWMiLCAiaW1wb3J0IHVybGxpYi5yZXF1ZXN0
OyB1cmxsaWIucmVxdWVzdC51cmxvcGVuKCdodHRwOi8vMTI3LjAuMC4xOjMwMDAvaGVhbHRoJywg
dGltZW91dD04KSJdCiAgICAgIGludGVydmFsOiAzMHMKICAgICAgdGltZW91dDogMTBzCiAgICAg
IHJldHJpZXM6IDMKICAgICAgc3RhcnRfcGVyaW9kOiAzMDBzCiAgICAgIHN0YXJ0X2ludGVydmFs
OiAycwogICAgcmVzdGFydDogdW5sZXNzLXN0b3BwZWQKICAgIHN0b3BfZ3JhY2VfcGVyaW9kOiAy
MHMKICAgIGxvZ2dpbmc6IHtkcml2ZXI6IGpzb24tZmlsZSwgb3B0aW9uczoge21heC1zaXplOiAx
MG0sIG1heC1maWxlOiAiMyJ9fQo=
END

# They stay, also where the container of before comes back.
note_written chat /etc/llamaherd/chat/key
began=$(date +%s)
up() {
    docker compose --progress plain -f /etc/llamaherd/chat/compose.yaml up -d --force-recreate --remove-orphans --wait --wait-timeout 300 >/run/llamaherd-chat.log 2>&1
}
if ! up; then
    tail -n 5 /run/llamaherd-chat.log | cut -c -300 >&2
    docker logs --tail 20 llamaherd-chat 2>&1 | cut -c -300 >&2
    echo "the chat page is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llamaherd-chat" >&2
    if [ -f /etc/llamaherd/chat/compose.yaml.old ]; then
        cp -p /etc/llamaherd/chat/compose.yaml.old /etc/llamaherd/chat/compose.yaml
        if up; then
            rm -f /etc/llamaherd/chat/untried /etc/llamaherd/chat/compose.yaml.old
            echo "what served before does again" >&2
        else
            echo "what served before is not healthy either: docker logs llamaherd-chat" >&2
        fi
    else
        docker compose -f /etc/llamaherd/chat/compose.yaml stop >/dev/null 2>&1
    fi
    exit 1
fi
rm -f /etc/llamaherd/chat/untried /etc/llamaherd/chat/compose.yaml.old
