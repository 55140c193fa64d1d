exec 8>/run/llamaherd.lock && flock 8 || exit 1  # two runs at once would restart each other's servers
systemctl -q is-active docker || systemctl start docker || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid llama --regid llama --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/0404040404040404/moe.gguf --alias moe --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 2 --host 0.0.0.0 --port 8081 --metrics --spec-type draft-mtp --spec-draft-n-max 2 --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance drafter: /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
[ -d /etc/llamaherd/compose/drafter ] || (umask 022 && mkdir -p /etc/llamaherd/compose/drafter)
base64 -d >/etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGRyYWZ0ZXJgIG9mIHJpZyBgYm94
YDogY2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCm5hbWU6IGxsYW1hLWRyYWZ0
ZXIKc2VydmljZXM6CiAgc2VydmVyOgogICAgaW1hZ2U6ICJsbGFtYWhlcmQvZW5naW5lOmxsYW1h
LmNwcC0yNTRjMmUxMTFmY2EtYTM3MWI2IgogICAgcHVsbF9wb2xpY3k6IG5ldmVyCiAgICBjb250
YWluZXJfbmFtZTogbGxhbWEtZHJhZnRlcgogICAgZW50cnlwb2ludDogWyIvdXNyL2xvY2FsL2Jp
bi9sbGFtYS1zZXJ2ZXIiXQogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGliL2xsYW1h
aGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNC9tb2UuZ2d1ZiIsICItLWFsaWFzIiwg
Im1vZSIsICItLWN0eC1zaXplIiwgIjQwOTYiLCAiLS1jYWNoZS10eXBlLWsiLCAiZjE2IiwgIi0t
Y2FjaGUtdHlwZS12IiwgImYxNiIsICItLWZsYXNoLWF0dG4iLCAiYXV0byIsICItLXBhcmFsbGVs
IiwgIjEiLCAiLS10aHJlYWRzIiwgIjIiLCAiLS1ob3N0IiwgIjAuMC4wLjAiLCAiLS1wb3J0Iiwg
IjgwODEiLCAiLS1tZXRyaWNzIiwgIi0tc3BlYy10eXBlIiwgImRyYWZ0LW10cCIsICItLXNwZWMt
ZHJhZnQtbi1tYXgiLCAiMiJdCiAgICBsYWJlbHM6CiAgICAgIGxsYW1haGVyZC5zcGVjOiAiMWNi
YTc1YTYyZmY1IgogICAgdXNlcjogIjY1NTMyOjY1NTMyIgogICAgcmVhZF9vbmx5OiB0cnVlCiAg
ICBjYXBfZHJvcDogW0FMTF0KICAgIHNlY3VyaXR5X29wdDogWyJuby1uZXctcHJpdmlsZWdlczp0
cnVlIl0KICAgIHRtcGZzOiBbIi90bXA6c2l6ZT02NG0sbW9kZT0xNzc3Il0KICAgIHBpZHNfbGlt
aXQ6IDUxMgogICAgb29tX3Njb3JlX2FkajogNTAwCiAgICBwb3J0czoKICAgICAgLSB7aG9zdF9p
cDogIjEyNy4wLjAuMSIsIHB1Ymxpc2hlZDogIjgwODEiLCB0YXJnZXQ6IDgwODEsIHByb3RvY29s
OiB0Y3B9CiAgICB2b2x1bWVzOgogICAgICAtIHt0eXBlOiBiaW5kLCBzb3VyY2U6ICIvdmFyL2xp
Yi9sbGFtYWhlcmQvbW9kZWxzL2xvY2FsLzA0MDQwNDA0MDQwNDA0MDQiLCB0YXJnZXQ6ICIvdmFy
L2xpYi9sbGFtYWhlcmQvbW9kZWxzL2xvY2FsLzA0MDQwNDA0MDQwNDA0MDQiLCByZWFkX29ubHk6
IHRydWUsIGJpbmQ6IHtjcmVhdGVfaG9zdF9wYXRoOiBmYWxzZX19CiAgICBoZWFsdGhjaGVjazoK
ICAgICAgdGVzdDogWyJDTUQiLCAiL3Vzci9iaW4vYnVzeWJveCIsICJ3Z2V0IiwgIi1xIiwgIi1P
IiwgIi9kZXYvbnVsbCIsICJodHRwOi8vMTI3LjAuMC4xOjgwODEvaGVhbHRoIl0KICAgICAgaW50
ZXJ2YWw6IDMwcwogICAgICB0aW1lb3V0OiA1cwogICAgICByZXRyaWVzOiAzCiAgICAgIHN0YXJ0
X3BlcmlvZDogMzAwcwogICAgICBzdGFydF9pbnRlcnZhbDogMXMKICAgIHJlc3RhcnQ6IHVubGVz
cy1zdG9wcGVkCiAgICBzdG9wX3NpZ25hbDogU0lHSU5UCiAgICBzdG9wX2dyYWNlX3BlcmlvZDog
MzBzCiAgICBsb2dnaW5nOiB7ZHJpdmVyOiBqc29uLWZpbGUsIG9wdGlvbnM6IHttYXgtc2l6ZTog
MTBtLCBtYXgtZmlsZTogIjMifX0K
END
chown root /etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new &&
    chmod 0644 /etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new &&
    mv -f /etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new /etc/llamaherd/compose/drafter/compose.yaml || exit 1

began=$(date +%s)
echo "starting llama-drafter in its container: it has 300 s to load its model"
if ! docker compose --progress plain -f /etc/llamaherd/compose/drafter/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-drafter 2>&1 | cut -c -300 >&2
    echo "llama-drafter is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-drafter" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    exit 1
fi
