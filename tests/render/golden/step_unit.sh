# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid llama --regid llama --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --parallel 1 --threads 2 --host 127.0.0.1 --port 8080 --metrics --api-key-file "$key" --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance chat: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
[ -d /etc/systemd/system ] || (umask 022 && mkdir -p /etc/systemd/system)
base64 -d >/etc/systemd/system/llama-chat.service.llamaherd-new <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGNoYXRgIG9mIHJpZyBgYm94YDog
Y2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCltVbml0XQpEZXNjcmlwdGlvbj1M
TE0gc2VydmVyIGNoYXQ6IGdlbW1hIG9uIG1haW4KQWZ0ZXI9bmV0d29yay50YXJnZXQgbG9jYWwt
ZnMudGFyZ2V0ClN0YXJ0TGltaXRJbnRlcnZhbFNlYz02MDAKU3RhcnRMaW1pdEJ1cnN0PTMKCltT
ZXJ2aWNlXQpUeXBlPWV4ZWMKRXhlY1N0YXJ0PS9vcHQvbGxhbWFoZXJkL2J1aWxkcy9sbGFtYS5j
cHAtMjU0YzJlMTExZmNhL2Jpbi9sbGFtYS1zZXJ2ZXIgLS1tb2RlbCAvdmFyL2xpYi9sbGFtYWhl
cmQvbW9kZWxzL2xvY2FsL2E1YTVhNWE1YTVhNWE1YTUvZ2VtbWEuZ2d1ZiAtLWFsaWFzIGdlbW1h
IC0tY3R4LXNpemUgODE5MiAtLWNhY2hlLXR5cGUtayBxOF8wIC0tY2FjaGUtdHlwZS12IHE4XzAg
LS1mbGFzaC1hdHRuIG9uIC0tcGFyYWxsZWwgMSAtLXRocmVhZHMgMiAtLWhvc3QgMTI3LjAuMC4x
IC0tcG9ydCA4MDgwIC0tbWV0cmljcyAtLWFwaS1rZXktZmlsZSAvZXRjL2xsYW1haGVyZC9rZXlz
L2NoYXQKIyBTdGFydGVkIG1lYW5zOiBpdCBhbnN3ZXJzLiBMb2FkaW5nIGEgbW9kZWwgZnJvbSBh
IGNvbGQgZGlzayB0YWtlcyBpdHMgdGltZS4KRXhlY1N0YXJ0UG9zdD0vb3B0L2xsYW1haGVyZC9s
aWJleGVjL3dhaXQtaGVhbHRoeSA4MDgwClRpbWVvdXRTdGFydFNlYz02MApSZXN0YXJ0PW9uLWZh
aWx1cmUKUmVzdGFydFNlYz0xMApLaWxsU2lnbmFsPVNJR0lOVApUaW1lb3V0U3RvcFNlYz0zMAoj
IERpZXMgYmVmb3JlIHNzaGQgZG9lcyB3aGVuIG1lbW9yeSBydW5zIG91dC4KT09NU2NvcmVBZGp1
c3Q9NTAwCkVudmlyb25tZW50PUxMQU1BSEVSRF9TUEVDPTk0ZWJiMjVhOTE3NwojIE5vIGNvbmZp
Z3VyYXRpb24gYnV0IHRoaXMgZmlsZTogbGxhbWEuY3BwIHJlYWRzIGNvbmZpZy5pbmkgZnJvbSBo
ZXJlIGFuZCBmcm9tIC9ldGMvbGxhbWEuY3BwLgpFbnZpcm9ubWVudD1YREdfQ09ORklHX0hPTUU9
L25vbmV4aXN0ZW50CkluYWNjZXNzaWJsZVBhdGhzPS0vZXRjL2xsYW1hLmNwcAoKVXNlcj1sbGFt
YQpHcm91cD1sbGFtYQpVTWFzaz0wMDc3Ck5vTmV3UHJpdmlsZWdlcz15ZXMKQ2FwYWJpbGl0eUJv
dW5kaW5nU2V0PQpBbWJpZW50Q2FwYWJpbGl0aWVzPQpQcml2YXRlRGV2aWNlcz15ZXMKRGV2aWNl
UG9saWN5PWNsb3NlZApQcm9jU3Vic2V0PXBpZApJUEFkZHJlc3NEZW55PWFueQpJUEFkZHJlc3NB
bGxvdz1sb2NhbGhvc3QKTG9ja1BlcnNvbmFsaXR5PXllcwpNZW1vcnlEZW55V3JpdGVFeGVjdXRl
PXllcwpQcml2YXRlSVBDPXllcwpQcml2YXRlVG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVzClByb3Rl
Y3RDb250cm9sR3JvdXBzPXllcwpQcm90ZWN0SG9tZT15ZXMKUHJvdGVjdEhvc3RuYW1lPXllcwpQ
cm90ZWN0S2VybmVsTG9ncz15ZXMKUHJvdGVjdEtlcm5lbE1vZHVsZXM9eWVzClByb3RlY3RLZXJu
ZWxUdW5hYmxlcz15ZXMKUHJvdGVjdFByb2M9aW52aXNpYmxlClByb3RlY3RTeXN0ZW09c3RyaWN0
ClJlbW92ZUlQQz15ZXMKUmVzdHJpY3RBZGRyZXNzRmFtaWxpZXM9QUZfSU5FVCBBRl9JTkVUNiBB
Rl9VTklYClJlc3RyaWN0TmFtZXNwYWNlcz15ZXMKUmVzdHJpY3RSZWFsdGltZT15ZXMKUmVzdHJp
Y3RTVUlEU0dJRD15ZXMKU3lzdGVtQ2FsbEFyY2hpdGVjdHVyZXM9bmF0aXZlClN5c3RlbUNhbGxF
cnJvck51bWJlcj1FUEVSTQpTeXN0ZW1DYWxsRmlsdGVyPUBzeXN0ZW0tc2VydmljZQpTeXN0ZW1D
YWxsRmlsdGVyPX5AcHJpdmlsZWdlZAoKW0luc3RhbGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFy
Z2V0Cg==
END
chown root /etc/systemd/system/llama-chat.service.llamaherd-new &&
    chmod 0644 /etc/systemd/system/llama-chat.service.llamaherd-new &&
    mv -f /etc/systemd/system/llama-chat.service.llamaherd-new /etc/systemd/system/llama-chat.service || exit 1
[ -d /etc/llamaherd/keys ] || (umask 022 && mkdir -p /etc/llamaherd/keys)
base64 -d >/etc/llamaherd/keys/chat.llamaherd-new <<'END' || exit 1
a2V5Cg==
END
chown llama /etc/llamaherd/keys/chat.llamaherd-new &&
    chmod 0400 /etc/llamaherd/keys/chat.llamaherd-new &&
    mv -f /etc/llamaherd/keys/chat.llamaherd-new /etc/llamaherd/keys/chat || exit 1

systemctl daemon-reload
systemctl -q enable llama-chat.service || exit 1
systemctl reset-failed llama-chat.service 2>/dev/null
echo "starting llama-chat.service: it has 60 s to load its model"
if ! systemctl restart llama-chat.service 2>/dev/null; then
    journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-chat.service did not become healthy within 60 s; its last lines are above, all of them in: journalctl -u llama-chat.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-chat.service
    exit 1
fi
