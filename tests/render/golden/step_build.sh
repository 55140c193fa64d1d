# Starts the build in a unit of its own, or joins the one that runs already, and says how far it is.
id=llama.cpp-254c2e111fca
work=/var/lib/llamaherd/work/$id
unit=llamaherd-build-$id.service
home=/opt/llamaherd/builds/$id
# What a finished build is known by without reading all of it: who replaces a program changes something of this.
stamp() {
    (cd "$1" && stat -c '%n %a %u' . bin && stat -c '%n %a %u %s %.Y %.Z %i' manifest.json bin/*) 2>/dev/null
}
# Whether its programs are those that its manifest has the hashes of.
intact() {
    (cd "$1/bin" && sed -n 's/.*"sha256": {\(.*\)}}.*/\1/p' ../manifest.json | tr ',' '\n' |
        sed -n 's/^ *"\(.*\)": "\([0-9a-f]*\)" *$/\2  \1/p' | sha256sum -c --strict --status) 2>/dev/null
}
# Return whether unit $1 runs. systemd that does not respond, as while it re-executes, is no reason to conclude anything.
runs() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        case $(systemctl show -P ActiveState "$1" 2>/dev/null) in
        active | activating | deactivating | reloading) return 0 ;;
        '') sleep 1 ;;
        *) return 1 ;;
        esac
    done
    echo "systemd does not respond, so it is unknown whether $1 runs; nothing was changed: run again" >&2
    exit 1
}
whole() { [ -f "$home/manifest.json" ] && [ -f "$home/bin/llama-server" ] && [ -f "$home/bin/llama-fit-params" ]; }
# Without it a build is unfinished: what is not what was built is built anew.
! whole || intact "$home" || rm -f "$home/manifest.json"
if ! whole && ! runs "$unit" && [ ! -f "$work/out/manifest.json" ]; then
    systemctl reset-failed "$unit" 2>/dev/null
    install -d -o llama-build "$work"
    rm -f "$work/failed" "$work/build.log" "$work/build.sh"  # links that an earlier build may have left
    base64 -d >"$work/build.sh" <<'END' || exit 1
IyEvYmluL3NoCiMgQnVpbGRzIGxsYW1hLmNwcCBhcyBsbGFtYS5jcHAtMjU0YzJlMTExZmNhLiBS
dW5zIGluIGEgdW5pdCBvZiBpdHMgb3duIGFzIHVzZXIgbGxhbWEtYnVpbGQsIHNvIHRoYXQgYSBs
b3N0IGNvbm5lY3Rpb24gZG9lcwojIG5vdCBzdG9wIGl0LiBBbGwgaGFwcGVucyBpbiAkd29yazsg
d2hhdCBpcyBmaW5pc2hlZCBoYXMgYSBtYW5pZmVzdCwgd2hpY2ggaXMgd3JpdHRlbiBsYXN0Lgpz
ZXQgLWV1Cndvcms9JHsxOi0vdmFyL2xpYi9sbGFtYWhlcmQvYnVpbGR9CmNhY2hlPSR7MjotL3Zh
ci9jYWNoZS9sbGFtYWhlcmR9Cm91dD0kd29yay9vdXQKCmZhaWwoKSB7CiAgICBwcmludGYgJyVz
XG4nICIkMSIgPiIkd29yay9mYWlsZWQiCiAgICBleGl0IDEKfQoKY2QgIiR3b3JrIgpybSAtcmYg
c291cmNlIHRyZWUgb3V0IGZhaWxlZApta2RpciBzb3VyY2UgdHJlZSBvdXQgb3V0L2JpbgpiZWdh
bj0kKGRhdGUgKyVzKQoKYXJjaGl2ZT0kY2FjaGUvc291cmNlcy9hYmFiYWJhYmFiYWJhYmFiYWJh
YmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiCmhhdmU9JChzaGEy
NTZzdW0gIiRhcmNoaXZlIiB8IGN1dCAtZCAnICcgLWYgMSkKaWYgWyAiJGhhdmUiICE9IGFiYWJh
YmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFi
YWIgXTsgdGhlbgogICAgcm0gLWYgIiRhcmNoaXZlIgogICAgZmFpbCBsbGFtYS50YXIuZ3oiIGhh
cyBzaGEyNTYgJGhhdmUsIHRoZSBpbnZlbnRvcnkgc2F5cyBhYmFiYWJhYmFiYWJhYmFiYWJhYmFi
YWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiIgpmaQp0YXIgLUMgc291
cmNlIC14ZiAiJGFyY2hpdmUiIHx8IGZhaWwgbGxhbWEudGFyLmd6IiBpcyBubyBhcmNoaXZlIHRo
YXQgdGFyIGNhbiByZWFkIgpzb3VyY2U9JHdvcmsvc291cmNlL2xsYW1hLmNwcApbIC1mICIkc291
cmNlL0NNYWtlTGlzdHMudHh0IiBdIHx8IGZhaWwgInRoZXJlIGlzIG5vIENNYWtlTGlzdHMudHh0
IGluIGZvbGRlciAnImxsYW1hLmNwcCInIG9mIHRoZSBzb3VyY2UiCgojIEFzIG1hbnkgam9icyBh
cyBjb3JlcywgYnV0IG5vIG1vcmUgdGhhbiBtZW1vcnkgaG9sZHM6IGEgY29tcGlsZXIgdGhhdCBz
d2FwcyB0YWtlcyB0aGUgd2hvbGUgbWFjaGluZSB3aXRoIGl0Lgpjb3Jlcz0kKG5wcm9jKQptZW1v
cnk9JChhd2sgJy9eTWVtQXZhaWxhYmxlOi8ge3ByaW50ZiAiJWQiLCAkMiAqIDEwMjR9JyAvcHJv
Yy9tZW1pbmZvKQpqb2JzPSQoKG1lbW9yeSAvIDEwNzM3NDE4MjQpKQpbICIkam9icyIgLWdlIDEg
XSB8fCBqb2JzPTEKWyAiJGpvYnMiIC1sZSAiJGNvcmVzIiBdIHx8IGpvYnM9JGNvcmVzCgojIENv
bXBpbGVzIGFyZSB0b2xkIGFwYXJ0IGJ5IGNvbnRlbnQsIG5vdCBieSBwYXRoIG9yIHRpbWUsIHNv
IHRoYXQgYSByZWJ1aWxkIGZyb20gc2NyYXRjaCBmaW5kcyB0aGVtIGFnYWluLgpleHBvcnQgQ0NB
Q0hFX0RJUj0iJGNhY2hlL2NjYWNoZSIgQ0NBQ0hFX0JBU0VESVI9IiR3b3JrIiBDQ0FDSEVfTk9I
QVNIRElSPTEgQ0NBQ0hFX0NPTVBJTEVSQ0hFQ0s9Y29udGVudApleHBvcnQgQ0NBQ0hFX01BWFNJ
WkU9MTBHIENDQUNIRV9TTE9QUElORVNTPXRpbWVfbWFjcm9zIENNQUtFX0JVSUxEX1BBUkFMTEVM
X0xFVkVMPSIkam9icyIKCmNtYWtlIC1TICIkc291cmNlIiAtQiB0cmVlIC1HIE5pbmphIFwKICAg
IC1EQ01BS0VfQlVJTERfVFlQRT1SZWxlYXNlIFwKICAgIC1EQlVJTERfU0hBUkVEX0xJQlM9T0ZG
IFwKICAgIC1ER0dNTF9OQVRJVkU9T04gXAogICAgLURHR01MX0NDQUNIRT1PTiBcCiAgICAtRExM
QU1BX0JVSUxEX1RFU1RTPU9GRiBcCiAgICAtRExMQU1BX0JVSUxEX0VYQU1QTEVTPU9GRiBcCiAg
ICAtRExMQU1BX1VTRV9QUkVCVUlMVF9VST1PRkYgXAogICAgLURMTEFNQV9CVUlMRF9OVU1CRVI9
MTE0MzQgXAogICAgLURMTEFNQV9CVUlMRF9DT01NSVQ9dW5rbm93biBcCiAgICA+Y29uZmlndXJl
LmxvZyAyPiYxIHx8IGZhaWwgIkNNYWtlIGNhbm5vdCBjb25maWd1cmUgaXQ7IHRoZSBsb2cgaXMg
L3Zhci9saWIvbGxhbWFoZXJkL3dvcmsvbGxhbWEuY3BwLTI1NGMyZTExMWZjYS9jb25maWd1cmUu
bG9nIgp1bnVzZWQ9JChhd2sgJy92YXJpYWJsZXMgd2VyZSBub3QgdXNlZCBieSB0aGUgcHJvamVj
dDovIHtvbiA9IDE7IG5leHR9IG9uICYmIE5GIHtwcmludGYgIiVzICIsICQxfScgY29uZmlndXJl
LmxvZykKIyBnZ21sIHJlYWRzIGV2ZXJ5IEdHTUxfIG5hbWUgdGhlcmUgaXMsIHNvIHRoYXQgQ01h
a2UgY291bnRzIG5vbmUgYXMgdW51c2VkOyB3aGF0IG5vdGhpbmcgZGVjbGFyZWQgaGFzIG5vIHR5
cGUuCnVudXNlZD0kdW51c2VkJChzZWQgLW4gJ3MvXlwoR0dNTF9bQS1aYS16MC05X10qXCk6VU5J
TklUSUFMSVpFRD0uKi9cMSAvcCcgdHJlZS9DTWFrZUNhY2hlLnR4dCkKWyAteiAiJHVudXNlZCIg
XSB8fCBmYWlsICJ0aGlzIGVuZ2luZSBkb2VzIG5vdCBrbm93IHRoZXNlIENNYWtlIG9wdGlvbnM6
ICR1bnVzZWQiCgpjbWFrZSAtLWJ1aWxkIHRyZWUgLWogIiRqb2JzIiAtLXRhcmdldCBsbGFtYS1z
ZXJ2ZXIgbGxhbWEtZml0LXBhcmFtcyA+YnVpbGQubG9nIDI+JjEgfHwKICAgIGZhaWwgIml0IGRv
ZXMgbm90IGNvbXBpbGU7IHRoZSBsb2cgaXMgL3Zhci9saWIvbGxhbWFoZXJkL3dvcmsvbGxhbWEu
Y3BwLTI1NGMyZTExMWZjYS9idWlsZC5sb2ciCmZvciB0YXJnZXQgaW4gbGxhbWEtc2VydmVyIGxs
YW1hLWZpdC1wYXJhbXM7IGRvCiAgICBjcCAidHJlZS9iaW4vJHRhcmdldCIgb3V0L2Jpbi8KZG9u
ZQpvdXQvYmluL2xsYW1hLXNlcnZlciAtLXZlcnNpb24gPnZlcnNpb24ubG9nIDI+JjEgfHwgZmFp
bCAidGhlIHNlcnZlciB0aGF0IHdhcyBidWlsdCBkb2VzIG5vdCBzdGFydDsgc2VlIC92YXIvbGli
L2xsYW1haGVyZC93b3JrL2xsYW1hLmNwcC0yNTRjMmUxMTFmY2EvdmVyc2lvbi5sb2ciCiMgSXRz
IGZsYWdzLCB3aXRob3V0IHRoZWlyIGRlc2NyaXB0aW9uczogd2hvZXZlciBjaGVja3MgYXJndW1l
bnRzIGxhdGVyIGtub3dzIHdoYXQgdGhpcyBidWlsZCB0YWtlcy4Kb3V0L2Jpbi9sbGFtYS1zZXJ2
ZXIgLS1oZWxwID5oZWxwLmxvZyAyPiYxIHx8IHRydWUKZ3JlcCAtYUUgJ14tLT9bQS1aYS16XScg
aGVscC5sb2cgfCBncmVwIC12ICdhcmd1bWVudCBoYXMgYmVlbiByZW1vdmVkJyB8IHNlZCAtRSAn
cy8gICtbXi0gXS4qJC8vOyBzLywgKy8sL2c7IHMvICskLy8nIHwgaGVhZCAtYyA2NDAwMCA+b3V0
L2ZsYWdzCgpsaW5lKCkgeyB0ciAtZCAnIlxcJyB8IGhlYWQgLW4gMTsgfQp7CiAgICBwcmludGYg
JyVzJyAneyJpZCI6ICJsbGFtYS5jcHAtMjU0YzJlMTExZmNhIiwgImtpbmQiOiAibGxhbWEuY3Bw
IiwgInNvdXJjZSI6IHsiYXJjaGl2ZSI6ICJsbGFtYS50YXIuZ3oiLCAic2hhMjU2IjogImFiYWJh
YmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFi
YWIifSwgIm9wdGlvbnMiOiB7IkNNQUtFX0JVSUxEX1RZUEUiOiAiUmVsZWFzZSIsICJCVUlMRF9T
SEFSRURfTElCUyI6ICJPRkYiLCAiR0dNTF9OQVRJVkUiOiAiT04iLCAiR0dNTF9DQ0FDSEUiOiAi
T04iLCAiTExBTUFfQlVJTERfVEVTVFMiOiAiT0ZGIiwgIkxMQU1BX0JVSUxEX0VYQU1QTEVTIjog
Ik9GRiIsICJMTEFNQV9VU0VfUFJFQlVJTFRfVUkiOiAiT0ZGIiwgIkxMQU1BX0JVSUxEX05VTUJF
UiI6ICIxMTQzNCIsICJMTEFNQV9CVUlMRF9DT01NSVQiOiAidW5rbm93biJ9JwogICAgcHJpbnRm
ICcsICJjb21waWxlciI6ICIlcyInICIkKGMrKyAtLXZlcnNpb24gfCBsaW5lKSIKICAgIHByaW50
ZiAnLCAidmVyc2lvbiI6ICIlcyInICIkKGdyZXAgLW0gMSB2ZXJzaW9uIHZlcnNpb24ubG9nIHwg
bGluZSkiCiAgICBwcmludGYgJywgImpvYnMiOiAlcywgInNlY29uZHMiOiAlcycgIiRqb2JzIiAk
KCgkKGRhdGUgKyVzKSAtIGJlZ2FuKSkKICAgIHByaW50ZiAnLCAic2hhMjU2IjogeyAlc319XG4n
ICIkKGNkIG91dC9iaW4gJiYgc2hhMjU2c3VtIC0tICogfCBhd2sgJ3twcmludGYgIiVzXCIlc1wi
OiBcIiVzXCIiLCBzZXAsICQyLCAkMTsgc2VwID0gIiwgIn0nKSIKfSA+b3V0L21hbmlmZXN0Lmpz
b24ucGFydAptdiBvdXQvbWFuaWZlc3QuanNvbi5wYXJ0IG91dC9tYW5pZmVzdC5qc29uCg==
END
    systemd-run -q --unit="$unit" --collect -p User=llama-build -p Nice=10 -p OOMScoreAdjust=800 \
        -p NoNewPrivileges=yes -p ProtectSystem=strict -p ReadWritePaths="$work /var/cache/llamaherd" -p BindPaths="$work:/var/lib/llamaherd/build" \
        -p ProtectHome=yes -p PrivateTmp=yes -E HOME=/var/lib/llamaherd/build sh /var/lib/llamaherd/build/build.sh || exit 1
fi
began=$(date +%s)
while runs "$unit"; do
    sleep 1
    elapsed=$(($(date +%s) - began))
    if [ $((elapsed % 10)) = 0 ]; then
        # A compiler may have much to say meanwhile.
        done=$(tail -c 100000 "$work/build.log" 2>/dev/null | tr '\r' '\n' | sed -n 's/^\[\([0-9]*\/[0-9]*\)\].*/\1/p' | tail -n 1)
        echo "building llama.cpp-254c2e111fca: ${done:-configuring} after ${elapsed} s"
    fi
done
# Whom a lost connection left behind here waits like us; one of us lets the build in.
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
hold 8 build 3600 'letting llama.cpp-254c2e111fca in' || exit 1
if whole; then
    echo "built llama.cpp-254c2e111fca"
    exit 0
fi
if [ ! -f "$work/out/manifest.json" ]; then
    rm -rf "$work/source" "$work/tree"  # gigabytes that the next try makes anew; the logs stay
    for log in build configure; do
        # The compiler's own words: what failed, and the errors that it gave for it.
        [ -s "$work/$log.log" ] && grep -aE -A 3 'FAILED:|error:|CMake Error' "$work/$log.log" | head -n 20 | cut -c -300 && break
    done
    cat "$work/failed" 2>/dev/null || echo "the build was stopped before it ended (killed, or out of memory); run again" >&2
    exit 1
fi
# From here root owns it, and the rename makes it exist at once and whole.
chown -R root:root "$work/out" && chmod -R u=rwX,go=rX "$work/out" &&
    rm -rf "$home" && mv -T "$work/out" "$home" && stamp "$home" >"$home/.stamp" &&
    rm -rf "$work" &&
    echo "built llama.cpp-254c2e111fca in $(sed -n 's/.*"seconds": \([0-9]*\).*/\1/p' "$home/manifest.json") s"
