exec 8>/run/llamaherd.lock && flock 8 || exit 1  # two runs at once would restart each other's servers
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
aWJleGVjL3dhaXQtaGVhbHRoeSBodHRwOi8vMTI3LjAuMC4xOjgwODAvaGVhbHRoClRpbWVvdXRT
dGFydFNlYz0zMDAKUmVzdGFydD1vbi1mYWlsdXJlClJlc3RhcnRTZWM9MTAKS2lsbFNpZ25hbD1T
SUdJTlQKVGltZW91dFN0b3BTZWM9MzAKIyBEaWVzIGJlZm9yZSBzc2hkIGRvZXMgd2hlbiBtZW1v
cnkgcnVucyBvdXQuCk9PTVNjb3JlQWRqdXN0PTUwMApFbnZpcm9ubWVudD1MTEFNQUhFUkRfU1BF
Qz03MjA3OGViYzdlZjEKIyBObyBjb25maWd1cmF0aW9uIGJ1dCB0aGlzIGZpbGU6IGxsYW1hLmNw
cCByZWFkcyBjb25maWcuaW5pIGZyb20gaGVyZSBhbmQgZnJvbSAvZXRjL2xsYW1hLmNwcC4KRW52
aXJvbm1lbnQ9WERHX0NPTkZJR19IT01FPS9ub25leGlzdGVudApJbmFjY2Vzc2libGVQYXRocz0t
L2V0Yy9sbGFtYS5jcHAKClVzZXI9bGxhbWEKR3JvdXA9bGxhbWEKVU1hc2s9MDA3NwpOb05ld1By
aXZpbGVnZXM9eWVzCkNhcGFiaWxpdHlCb3VuZGluZ1NldD0KQW1iaWVudENhcGFiaWxpdGllcz0K
UHJpdmF0ZURldmljZXM9eWVzCkRldmljZVBvbGljeT1jbG9zZWQKUHJvY1N1YnNldD1waWQKSVBB
ZGRyZXNzRGVueT1hbnkKSVBBZGRyZXNzQWxsb3c9bG9jYWxob3N0CkxvY2tQZXJzb25hbGl0eT15
ZXMKTWVtb3J5RGVueVdyaXRlRXhlY3V0ZT15ZXMKUHJpdmF0ZUlQQz15ZXMKUHJpdmF0ZVRtcD15
ZXMKUHJvdGVjdENsb2NrPXllcwpQcm90ZWN0Q29udHJvbEdyb3Vwcz15ZXMKUHJvdGVjdEhvbWU9
eWVzClByb3RlY3RIb3N0bmFtZT15ZXMKUHJvdGVjdEtlcm5lbExvZ3M9eWVzClByb3RlY3RLZXJu
ZWxNb2R1bGVzPXllcwpQcm90ZWN0S2VybmVsVHVuYWJsZXM9eWVzClByb3RlY3RQcm9jPWludmlz
aWJsZQpQcm90ZWN0U3lzdGVtPXN0cmljdApSZW1vdmVJUEM9eWVzClJlc3RyaWN0QWRkcmVzc0Zh
bWlsaWVzPUFGX0lORVQgQUZfSU5FVDYgQUZfVU5JWApSZXN0cmljdE5hbWVzcGFjZXM9eWVzClJl
c3RyaWN0UmVhbHRpbWU9eWVzClJlc3RyaWN0U1VJRFNHSUQ9eWVzClN5c3RlbUNhbGxBcmNoaXRl
Y3R1cmVzPW5hdGl2ZQpTeXN0ZW1DYWxsRXJyb3JOdW1iZXI9RVBFUk0KU3lzdGVtQ2FsbEZpbHRl
cj1Ac3lzdGVtLXNlcnZpY2UKU3lzdGVtQ2FsbEZpbHRlcj1+QHByaXZpbGVnZWQKCltJbnN0YWxs
XQpXYW50ZWRCeT1tdWx0aS11c2VyLnRhcmdldAo=
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

began=$(date +%s)
systemctl daemon-reload
systemctl -q enable llama-chat.service || exit 1
systemctl reset-failed llama-chat.service 2>/dev/null
echo "starting llama-chat.service: it has 300 s to load its model"
if ! systemctl restart llama-chat.service 2>/dev/null; then
    journalctl -q -u llama-chat.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-chat.service is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: journalctl -u llama-chat.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-chat.service
    exit 1
fi
