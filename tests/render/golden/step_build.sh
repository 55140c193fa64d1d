# Starts the build in a unit of its own, or joins the one that runs already, and says how far it is.
id=llama.cpp-254c2e111fca
work=/var/lib/llamaherd/work/$id
unit=llamaherd-build-$id.service
if ! systemctl -q is-active "$unit" && [ ! -f "$work/out/manifest.json" ]; then
    systemctl reset-failed "$unit" 2>/dev/null
    install -d -o llama-build "$work"
    rm -f "$work/failed" "$work/build.log"
    base64 -d >"$work/build.sh" <<'END' || exit 1
IyEvYmluL3NoCiMgQnVpbGRzIGxsYW1hLmNwcCBhcyBsbGFtYS5jcHAtMjU0YzJlMTExZmNhLiBS
dW5zIGluIGEgdW5pdCBvZiBpdHMgb3duIGFzIHVzZXIgbGxhbWEtYnVpbGQsIHNvIHRoYXQgYSBs
b3N0IGNvbm5lY3Rpb24gZG9lcwojIG5vdCBzdG9wIGl0LiBBbGwgaGFwcGVucyBpbiAkd29yazsg
d2hhdCBpcyBmaW5pc2hlZCBoYXMgYSBtYW5pZmVzdCwgd2hpY2ggaXMgd3JpdHRlbiBsYXN0Lgpz
ZXQgLWV1Cndvcms9JHsxOi0vdmFyL2xpYi9sbGFtYWhlcmQvd29yay9sbGFtYS5jcHAtMjU0YzJl
MTExZmNhfQpjYWNoZT0kezI6LS92YXIvY2FjaGUvbGxhbWFoZXJkfQpvdXQ9JHdvcmsvb3V0Cgpm
YWlsKCkgewogICAgcHJpbnRmICclc1xuJyAiJDEiID4iJHdvcmsvZmFpbGVkIgogICAgZXhpdCAx
Cn0KCmNkICIkd29yayIKcm0gLXJmIHNvdXJjZSB0cmVlIG91dCBmYWlsZWQKbWtkaXIgc291cmNl
IHRyZWUgb3V0IG91dC9iaW4KYmVnYW49JChkYXRlICslcykKCmFyY2hpdmU9JGNhY2hlL3NvdXJj
ZXMvYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFi
YWJhYmFiYWJhYgpoYXZlPSQoc2hhMjU2c3VtICIkYXJjaGl2ZSIgfCBjdXQgLWQgJyAnIC1mIDEp
CmlmIFsgIiRoYXZlIiAhPSBhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFi
YWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiIF07IHRoZW4KICAgIHJtIC1mICIkYXJjaGl2ZSIKICAg
IGZhaWwgbGxhbWEudGFyLmd6IiBoYXMgc2hhMjU2ICRoYXZlLCB0aGUgaW52ZW50b3J5IHNheXMg
YWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJh
YmFiYWJhYiIKZmkKdGFyIC1DIHNvdXJjZSAteGYgIiRhcmNoaXZlIiB8fCBmYWlsIGxsYW1hLnRh
ci5neiIgaXMgbm8gYXJjaGl2ZSB0aGF0IHRhciBjYW4gcmVhZCIKc291cmNlPSR3b3JrL3NvdXJj
ZS9sbGFtYS5jcHAKWyAtZiAiJHNvdXJjZS9DTWFrZUxpc3RzLnR4dCIgXSB8fCBmYWlsICJ0aGVy
ZSBpcyBubyBDTWFrZUxpc3RzLnR4dCBpbiBmb2xkZXIgJyJsbGFtYS5jcHAiJyBvZiB0aGUgc291
cmNlIgoKIyBBcyBtYW55IGpvYnMgYXMgY29yZXMsIGJ1dCBubyBtb3JlIHRoYW4gbWVtb3J5IGhv
bGRzOiBhIGNvbXBpbGVyIHRoYXQgc3dhcHMgdGFrZXMgdGhlIHdob2xlIG1hY2hpbmUgd2l0aCBp
dC4KY29yZXM9JChucHJvYykKbWVtb3J5PSQoYXdrICcvXk1lbUF2YWlsYWJsZTovIHtwcmludGYg
IiVkIiwgJDIgKiAxMDI0fScgL3Byb2MvbWVtaW5mbykKam9icz0kKChtZW1vcnkgLyAxMDczNzQx
ODI0KSkKWyAiJGpvYnMiIC1nZSAxIF0gfHwgam9icz0xClsgIiRqb2JzIiAtbGUgIiRjb3JlcyIg
XSB8fCBqb2JzPSRjb3JlcwoKIyBDb21waWxlcyBhcmUgdG9sZCBhcGFydCBieSBjb250ZW50LCBu
b3QgYnkgcGF0aCBvciB0aW1lLCBzbyB0aGF0IGEgcmVidWlsZCBmcm9tIHNjcmF0Y2ggZmluZHMg
dGhlbSBhZ2Fpbi4KZXhwb3J0IENDQUNIRV9ESVI9IiRjYWNoZS9jY2FjaGUiIENDQUNIRV9CQVNF
RElSPSIkd29yayIgQ0NBQ0hFX05PSEFTSERJUj0xIENDQUNIRV9DT01QSUxFUkNIRUNLPWNvbnRl
bnQKZXhwb3J0IENDQUNIRV9NQVhTSVpFPTEwRyBDQ0FDSEVfU0xPUFBJTkVTUz10aW1lX21hY3Jv
cyBDTUFLRV9CVUlMRF9QQVJBTExFTF9MRVZFTD0iJGpvYnMiCgpjbWFrZSAtUyAiJHNvdXJjZSIg
LUIgdHJlZSAtRyBOaW5qYSBcCiAgICAtRENNQUtFX0JVSUxEX1RZUEU9UmVsZWFzZSBcCiAgICAt
REJVSUxEX1NIQVJFRF9MSUJTPU9GRiBcCiAgICAtREdHTUxfTkFUSVZFPU9OIFwKICAgIC1ER0dN
TF9DQ0FDSEU9T04gXAogICAgLURMTEFNQV9CVUlMRF9URVNUUz1PRkYgXAogICAgLURMTEFNQV9C
VUlMRF9FWEFNUExFUz1PRkYgXAogICAgLURMTEFNQV9VU0VfUFJFQlVJTFRfVUk9T0ZGIFwKICAg
IC1ETExBTUFfQlVJTERfTlVNQkVSPTExNDM0IFwKICAgIC1ETExBTUFfQlVJTERfQ09NTUlUPXVu
a25vd24gXAogICAgPmNvbmZpZ3VyZS5sb2cgMj4mMSB8fCBmYWlsICJDTWFrZSBjYW5ub3QgY29u
ZmlndXJlIGl0OyB0aGUgbG9nIGlzICR3b3JrL2NvbmZpZ3VyZS5sb2ciCnVudXNlZD0kKGF3ayAn
L3ZhcmlhYmxlcyB3ZXJlIG5vdCB1c2VkIGJ5IHRoZSBwcm9qZWN0Oi8ge29uID0gMTsgbmV4dH0g
b24gJiYgTkYge3ByaW50ZiAiJXMgIiwgJDF9JyBjb25maWd1cmUubG9nKQpbIC16ICIkdW51c2Vk
IiBdIHx8IGZhaWwgInRoaXMgZW5naW5lIGRvZXMgbm90IGtub3cgdGhlc2UgQ01ha2Ugb3B0aW9u
czogJHVudXNlZCIKCmNtYWtlIC0tYnVpbGQgdHJlZSAtaiAiJGpvYnMiIC0tdGFyZ2V0IGxsYW1h
LXNlcnZlciBsbGFtYS1maXQtcGFyYW1zID5idWlsZC5sb2cgMj4mMSB8fAogICAgZmFpbCAiaXQg
ZG9lcyBub3QgY29tcGlsZTsgdGhlIGxvZyBpcyAkd29yay9idWlsZC5sb2ciCmZvciB0YXJnZXQg
aW4gbGxhbWEtc2VydmVyIGxsYW1hLWZpdC1wYXJhbXM7IGRvCiAgICBjcCAidHJlZS9iaW4vJHRh
cmdldCIgb3V0L2Jpbi8KZG9uZQpvdXQvYmluL2xsYW1hLXNlcnZlciAtLXZlcnNpb24gPnZlcnNp
b24ubG9nIDI+JjEgfHwgZmFpbCAidGhlIHNlcnZlciB0aGF0IHdhcyBidWlsdCBkb2VzIG5vdCBz
dGFydDsgc2VlICR3b3JrL3ZlcnNpb24ubG9nIgoKbGluZSgpIHsgdHIgLWQgJyJcXCcgfCBoZWFk
IC1uIDE7IH0KewogICAgcHJpbnRmICclcycgJ3siaWQiOiAibGxhbWEuY3BwLTI1NGMyZTExMWZj
YSIsICJraW5kIjogImxsYW1hLmNwcCIsICJzb3VyY2UiOiB7ImFyY2hpdmUiOiAibGxhbWEudGFy
Lmd6IiwgInNoYTI1NiI6ICJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFi
YWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiIn0sICJvcHRpb25zIjogeyJDTUFLRV9CVUlMRF9UWVBF
IjogIlJlbGVhc2UiLCAiQlVJTERfU0hBUkVEX0xJQlMiOiAiT0ZGIiwgIkdHTUxfTkFUSVZFIjog
Ik9OIiwgIkdHTUxfQ0NBQ0hFIjogIk9OIiwgIkxMQU1BX0JVSUxEX1RFU1RTIjogIk9GRiIsICJM
TEFNQV9CVUlMRF9FWEFNUExFUyI6ICJPRkYiLCAiTExBTUFfVVNFX1BSRUJVSUxUX1VJIjogIk9G
RiIsICJMTEFNQV9CVUlMRF9OVU1CRVIiOiAiMTE0MzQiLCAiTExBTUFfQlVJTERfQ09NTUlUIjog
InVua25vd24ifScKICAgIHByaW50ZiAnLCAiY29tcGlsZXIiOiAiJXMiJyAiJChjKysgLS12ZXJz
aW9uIHwgbGluZSkiCiAgICBwcmludGYgJywgInZlcnNpb24iOiAiJXMiJyAiJChncmVwIC1tIDEg
dmVyc2lvbiB2ZXJzaW9uLmxvZyB8IGxpbmUpIgogICAgcHJpbnRmICcsICJqb2JzIjogJXMsICJz
ZWNvbmRzIjogJXMnICIkam9icyIgJCgoJChkYXRlICslcykgLSBiZWdhbikpCiAgICBwcmludGYg
JywgInNoYTI1NiI6IHsgJXN9fVxuJyAiJChjZCBvdXQvYmluICYmIHNoYTI1NnN1bSAtLSAqIHwg
YXdrICd7cHJpbnRmICIlc1wiJXNcIjogXCIlc1wiIiwgc2VwLCAkMiwgJDE7IHNlcCA9ICIsICJ9
JykiCn0gPm91dC9tYW5pZmVzdC5qc29uLnBhcnQKbXYgb3V0L21hbmlmZXN0Lmpzb24ucGFydCBv
dXQvbWFuaWZlc3QuanNvbgo=
END
    systemd-run -q --unit="$unit" --collect -p User=llama-build -p Nice=10 -p OOMScoreAdjust=800 \
        -p NoNewPrivileges=yes -p ProtectSystem=strict -p ReadWritePaths="$work /var/cache/llamaherd" \
        -p ProtectHome=yes -p PrivateTmp=yes -E HOME="$work" sh "$work/build.sh" || exit 1
fi
began=$(date +%s)
while systemctl -q is-active "$unit"; do
    sleep 1
    elapsed=$(($(date +%s) - began))
    if [ $((elapsed % 10)) = 0 ]; then
        done=$(tail -c 300 "$work/build.log" 2>/dev/null | tr '\r' '\n' | sed -n 's/^\[\([0-9]*\/[0-9]*\)\].*/\1/p' | tail -n 1)
        echo "building llama.cpp-254c2e111fca: ${done:-configuring} after ${elapsed} s"
    fi
done
if [ ! -f "$work/out/manifest.json" ]; then
    for log in build configure; do
        # The compiler's own words: what failed, and the errors that it gave for it.
        [ -s "$work/$log.log" ] && grep -aE -A 3 'FAILED:|error:|CMake Error' "$work/$log.log" | head -n 20 | cut -c -300 && break
    done
    cat "$work/failed" 2>/dev/null || echo "the build was stopped before it ended (killed, or out of memory); run again" >&2
    exit 1
fi
# From here root owns it, and the rename makes it exist at once and whole.
chown -R root:root "$work/out" && chmod -R u=rwX,go=rX "$work/out" &&
    rm -rf "/opt/llamaherd/builds/$id" && mv -T "$work/out" "/opt/llamaherd/builds/$id" &&
    rm -rf "$work" &&
    echo "built llama.cpp-254c2e111fca in $(sed -n 's/.*"seconds": \([0-9]*\).*/\1/p' "/opt/llamaherd/builds/$id/manifest.json") s"
