# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
[ -d /opt/llamaherd/libexec ] || (umask 022 && mkdir -p /opt/llamaherd/libexec)
base64 -d >/opt/llamaherd/libexec/wait-healthy.llamaherd-new <<'END' || exit 1
IyEvYmluL3NoCiMgV2FpdHMgdW50aWwgdGhlIHNlcnZlciBvbiBwb3J0ICQxIHNheXMgdGhhdCBp
dHMgbW9kZWwgaXMgbG9hZGVkLiBFbmRzIGVhcmx5IHdoZW4gdGhlIHNlcnZlciAoJE1BSU5QSUQp
IGlzIGdvbmU7CiMgaG93IGxvbmcgaXQgbWF5IHRha2UgYXQgbW9zdCBpcyBUaW1lb3V0U3RhcnRT
ZWM9IG9mIHRoZSB1bml0IHRoYXQgY2FsbHMgaXQuCnNldCAtdQp1bnRpbCBjdXJsIC1mcyAtbyAv
ZGV2L251bGwgLS1tYXgtdGltZSA1ICJodHRwOi8vMTI3LjAuMC4xOiQxL2hlYWx0aCI7IGRvCiAg
ICBraWxsIC0wICIkTUFJTlBJRCIgMj4vZGV2L251bGwgfHwgZXhpdCAxCiAgICBzbGVlcCAwLjIK
ZG9uZQo=
END
chown root /opt/llamaherd/libexec/wait-healthy.llamaherd-new &&
    chmod 0755 /opt/llamaherd/libexec/wait-healthy.llamaherd-new &&
    mv -f /opt/llamaherd/libexec/wait-healthy.llamaherd-new /opt/llamaherd/libexec/wait-healthy || exit 1
