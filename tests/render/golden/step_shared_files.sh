# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
[ -d /opt/llamaherd/libexec ] || (umask 022 && mkdir -p /opt/llamaherd/libexec)
base64 -d >/opt/llamaherd/libexec/wait-healthy.llamaherd-new <<'END' || exit 1
IyEvYmluL3NoCiMgV2FpdHMgdW50aWwgdGhlIHNlcnZlciB0aGF0IGlzIGFza2VkIGZvciBpdHMg
aGVhbHRoIGF0IFVSTCAkMSBzYXlzIHRoYXQgaXRzIG1vZGVsIGlzIGxvYWRlZC4gRW5kcyBlYXJs
eSB3aGVuIHRoZQojIHNlcnZlciAoJE1BSU5QSUQpIGlzIGdvbmU7IGhvdyBsb25nIGl0IG1heSB0
YWtlIGF0IG1vc3QgaXMgVGltZW91dFN0YXJ0U2VjPSBvZiB0aGUgdW5pdCB0aGF0IGNhbGxzIGl0
LgpzZXQgLXUKdW50aWwgY3VybCAtZnMgLW8gL2Rldi9udWxsIC0tbWF4LXRpbWUgNSAiJDEiOyBk
bwogICAga2lsbCAtMCAiJE1BSU5QSUQiIDI+L2Rldi9udWxsIHx8IGV4aXQgMQogICAgc2xlZXAg
MC4yCmRvbmUK
END
chown root /opt/llamaherd/libexec/wait-healthy.llamaherd-new &&
    chmod 0755 /opt/llamaherd/libexec/wait-healthy.llamaherd-new &&
    mv -f /opt/llamaherd/libexec/wait-healthy.llamaherd-new /opt/llamaherd/libexec/wait-healthy || exit 1
