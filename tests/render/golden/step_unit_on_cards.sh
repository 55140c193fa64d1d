exec 8>/run/llamaherd.lock && flock 8 || exit 1  # two runs at once would restart each other's servers
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid llama-reasoner --regid llama-reasoner --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf --alias 35b --ctx-size 262144 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 127.0.0.1 --port 8001 --metrics --gpu-layers all --spec-type draft-mtp --spec-draft-n-max 3 --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance reasoner: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
[ -d /etc/systemd/system ] || (umask 022 && mkdir -p /etc/systemd/system)
base64 -d >/etc/systemd/system/llama-reasoner.service.llamaherd-new <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYHJlYXNvbmVyYCBvZiByaWcgYGR1
b2A6IGNoYW5nZSB0aGUgaW52ZW50b3J5LCBub3QgdGhpcyBmaWxlLgpbVW5pdF0KRGVzY3JpcHRp
b249TExNIHNlcnZlciByZWFzb25lcjogMzViIG9uIG1haW4KQWZ0ZXI9bmV0d29yay50YXJnZXQg
bG9jYWwtZnMudGFyZ2V0CiMgQSBuYW1lIGluIERldmljZUFsbG93PSBpcyBsb29rZWQgdXAgb25j
ZSwgYXQgc3RhcnQ6IHRoZSBtb2R1bGUgbXVzdCBiZSB0aGVyZSBieSB0aGVuLgpXYW50cz1tb2Rw
cm9iZUBudmlkaWFfdXZtLnNlcnZpY2UgbnZpZGlhLXBlcnNpc3RlbmNlZC5zZXJ2aWNlCkFmdGVy
PW1vZHByb2JlQG52aWRpYV91dm0uc2VydmljZSBudmlkaWEtcGVyc2lzdGVuY2VkLnNlcnZpY2UK
U3RhcnRMaW1pdEludGVydmFsU2VjPTYwMApTdGFydExpbWl0QnVyc3Q9MwoKW1NlcnZpY2VdClR5
cGU9ZXhlYwojIENVREEgaXRzZWxmIHdvdWxkIG1ha2UgdGhpcyBub2RlLCBieSBhIHNldHVpZCBw
cm9ncmFtIHRoYXQgTm9OZXdQcml2aWxlZ2VzIHN0b3BzLiBBcyByb290ICgrKSwgd2hlcmUgaXQg
aXMgdGhlcmUgKC0pOwojIHdoYXQgRGV2aWNlQWxsb3c9IHNheXMgaG9sZHMgZm9yIGl0IGFsbCB0
aGUgc2FtZS4KRXhlY1N0YXJ0UHJlPS0rL3Vzci9iaW4vbnZpZGlhLW1vZHByb2JlIC11IC1jIDAK
RXhlY1N0YXJ0UHJlPS9vcHQvbGxhbWFoZXJkL2xpYmV4ZWMvZ3B1LWdhdGUgMTIwIEdQVS01MDkw
IEdQVS0zMDkwCkV4ZWNTdGFydD0vb3B0L2xsYW1haGVyZC9idWlsZHMvbGxhbWEuY3BwLTFlNWE0
YzMyMTAyMy9iaW4vbGxhbWEtc2VydmVyIC0tbW9kZWwgL3Zhci9saWIvbGxhbWFoZXJkL21vZGVs
cy91bnNsb3RoL1F3ZW4zLjYtMzVCLUEzQi1NVFAtR0dVRi9kY2RjZGNkY2RjZGNkY2RjZGNkY2Rj
ZGNkY2RjZGNkY2RjZGNkY2RjL1VELVE0X0tfWEwvMzViLTAwMDAxLW9mLTAwMDAyLmdndWYgLS1h
bGlhcyAzNWIgLS1jdHgtc2l6ZSAyNjIxNDQgLS1jYWNoZS10eXBlLWsgZjE2IC0tY2FjaGUtdHlw
ZS12IGYxNiAtLWZsYXNoLWF0dG4gYXV0byAtLXBhcmFsbGVsIDEgLS10aHJlYWRzIDEyIC0taG9z
dCAxMjcuMC4wLjEgLS1wb3J0IDgwMDEgLS1tZXRyaWNzIC0tZ3B1LWxheWVycyBhbGwgLS1zcGVj
LXR5cGUgZHJhZnQtbXRwIC0tc3BlYy1kcmFmdC1uLW1heCAzCiMgU3RhcnRlZCBtZWFuczogaXQg
YW5zd2Vycy4gTG9hZGluZyBhIG1vZGVsIGZyb20gYSBjb2xkIGRpc2sgdGFrZXMgaXRzIHRpbWUu
CkV4ZWNTdGFydFBvc3Q9L29wdC9sbGFtYWhlcmQvbGliZXhlYy93YWl0LWhlYWx0aHkgaHR0cDov
LzEyNy4wLjAuMTo4MDAxL2hlYWx0aAojIFdpdGhvdXQgQ1VEQSBpdCB3b3VsZCBiZSBoZWFsdGh5
IGFzIHdlbGwsIG9uIHRoZSBDUFUuCkV4ZWNTdGFydFBvc3Q9L29wdC9sbGFtYWhlcmQvbGliZXhl
Yy9ncHUtY2hlY2sgZXZlcnkgImpvdXJuYWxjdGwgLXUgbGxhbWEtcmVhc29uZXIiICR7TUFJTlBJ
RH0gR1BVLTUwOTAgR1BVLTMwOTAKVGltZW91dFN0YXJ0U2VjPTM2MApSZXN0YXJ0PW9uLWZhaWx1
cmUKUmVzdGFydFNlYz0xMApLaWxsU2lnbmFsPVNJR0lOVApUaW1lb3V0U3RvcFNlYz0zMAojIERp
ZXMgYmVmb3JlIHNzaGQgZG9lcyB3aGVuIG1lbW9yeSBydW5zIG91dC4KT09NU2NvcmVBZGp1c3Q9
NTAwCkVudmlyb25tZW50PUxMQU1BSEVSRF9TUEVDPTJkMzk5N2M1NmMyNQojIE5vIGNvbmZpZ3Vy
YXRpb24gYnV0IHRoaXMgZmlsZTogbGxhbWEuY3BwIHJlYWRzIGNvbmZpZy5pbmkgZnJvbSBoZXJl
IGFuZCBmcm9tIC9ldGMvbGxhbWEuY3BwLgpFbnZpcm9ubWVudD1YREdfQ09ORklHX0hPTUU9L25v
bmV4aXN0ZW50CkluYWNjZXNzaWJsZVBhdGhzPS0vZXRjL2xsYW1hLmNwcApFbnZpcm9ubWVudD1D
VURBX0RFVklDRV9PUkRFUj1QQ0lfQlVTX0lECkVudmlyb25tZW50PUNVREFfVklTSUJMRV9ERVZJ
Q0VTPUdQVS01MDkwLEdQVS0zMDkwCgpVc2VyPWxsYW1hLXJlYXNvbmVyCkdyb3VwPWxsYW1hLXJl
YXNvbmVyClVNYXNrPTAwNzcKTm9OZXdQcml2aWxlZ2VzPXllcwpDYXBhYmlsaXR5Qm91bmRpbmdT
ZXQ9CkFtYmllbnRDYXBhYmlsaXRpZXM9CkRldmljZVBvbGljeT1jbG9zZWQKRGV2aWNlQWxsb3c9
Y2hhci1udmlkaWEgcncKRGV2aWNlQWxsb3c9Y2hhci1udmlkaWEtZnJvbnRlbmQgcncKRGV2aWNl
QWxsb3c9Y2hhci1udmlkaWFjdGwgcncKIyBtOiBudmlkaWEtbW9kcHJvYmUgbWFrZXMgdGhlIG5v
ZGUuIFRoZSBzZXJ2ZXIgY2Fubm90LCBpdCBoYXMgbm8gQ0FQX01LTk9ELgpEZXZpY2VBbGxvdz1j
aGFyLW52aWRpYS11dm0gcndtCkRldmljZUFsbG93PWNoYXItbnZpZGlhLWNhcHMgcgpEZXZpY2VB
bGxvdz0vZGV2L2R4ZyBydwpJUEFkZHJlc3NEZW55PWFueQpJUEFkZHJlc3NBbGxvdz1sb2NhbGhv
c3QKTG9ja1BlcnNvbmFsaXR5PXllcwpNZW1vcnlEZW55V3JpdGVFeGVjdXRlPXllcwpQcml2YXRl
SVBDPXllcwpQcml2YXRlVG1wPXllcwpQcm90ZWN0Q2xvY2s9eWVzClByb3RlY3RDb250cm9sR3Jv
dXBzPXllcwpQcm90ZWN0SG9tZT15ZXMKUHJvdGVjdEhvc3RuYW1lPXllcwpQcm90ZWN0S2VybmVs
TG9ncz15ZXMKUHJvdGVjdEtlcm5lbE1vZHVsZXM9eWVzClByb3RlY3RLZXJuZWxUdW5hYmxlcz15
ZXMKUHJvdGVjdFByb2M9aW52aXNpYmxlClByb3RlY3RTeXN0ZW09c3RyaWN0ClJlbW92ZUlQQz15
ZXMKUmVzdHJpY3RBZGRyZXNzRmFtaWxpZXM9QUZfSU5FVCBBRl9JTkVUNiBBRl9VTklYClJlc3Ry
aWN0TmFtZXNwYWNlcz15ZXMKUmVzdHJpY3RSZWFsdGltZT15ZXMKUmVzdHJpY3RTVUlEU0dJRD15
ZXMKU3lzdGVtQ2FsbEFyY2hpdGVjdHVyZXM9bmF0aXZlClN5c3RlbUNhbGxFcnJvck51bWJlcj1F
UEVSTQpTeXN0ZW1DYWxsRmlsdGVyPUBzeXN0ZW0tc2VydmljZQpTeXN0ZW1DYWxsRmlsdGVyPX5A
cHJpdmlsZWdlZAoKW0luc3RhbGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFyZ2V0Cg==
END
chown root /etc/systemd/system/llama-reasoner.service.llamaherd-new &&
    chmod 0644 /etc/systemd/system/llama-reasoner.service.llamaherd-new &&
    mv -f /etc/systemd/system/llama-reasoner.service.llamaherd-new /etc/systemd/system/llama-reasoner.service || exit 1

began=$(date +%s)
systemctl daemon-reload
systemctl -q enable llama-reasoner.service || exit 1
systemctl reset-failed llama-reasoner.service 2>/dev/null
echo "starting llama-reasoner.service: it has 360 s to load its model"
if ! systemctl restart llama-reasoner.service 2>/dev/null; then
    # Said first, and long gone from the last lines.
    journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID llama-reasoner.service)" --no-pager -o cat | grep -i cuda | head -n 3 | cut -c -300 >&2
    journalctl -q -u llama-reasoner.service -n 20 --no-pager -o cat | cut -c -300 >&2
    echo "llama-reasoner.service is not healthy after $(($(date +%s) - began)) s of 360; its last lines are above, all of them in: journalctl -u llama-reasoner.service" >&2
    # Left alone, it would go on failing every ten seconds behind our back.
    systemctl stop llama-reasoner.service
    exit 1
fi
