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
ZHJhZnQtbi1tYXgiLCAiMiJdCiAgICBsYWJlbHM6CiAgICAgIGxsYW1haGVyZC5zcGVjOiAiZmE4
NDY0ZDIxZWYxIgogICAgdXNlcjogIjY1NTMyOjY1NTMyIgogICAgcmVhZF9vbmx5OiB0cnVlCiAg
ICBjYXBfZHJvcDogW0FMTF0KICAgIHNlY3VyaXR5X29wdDogWyJuby1uZXctcHJpdmlsZWdlczp0
cnVlIl0KICAgIHRtcGZzOiBbIi90bXA6c2l6ZT02NG0sbW9kZT0xNzc3Il0KICAgIHBpZHNfbGlt
aXQ6IDUxMgogICAgb29tX3Njb3JlX2FkajogNTAwCiAgICBwb3J0czogWyIxMjcuMC4wLjE6ODA4
MTo4MDgxIl0KICAgIHZvbHVtZXM6CiAgICAgIC0ge3R5cGU6IGJpbmQsIHNvdXJjZTogIi92YXIv
bGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNCIsIHRhcmdldDogIi92
YXIvbGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNCIsIHJlYWRfb25s
eTogdHJ1ZSwgYmluZDoge2NyZWF0ZV9ob3N0X3BhdGg6IGZhbHNlfX0KICAgIGhlYWx0aGNoZWNr
OgogICAgICB0ZXN0OiBbIkNNRCIsICIvdXNyL2Jpbi9idXN5Ym94IiwgIndnZXQiLCAiLXEiLCAi
LU8iLCAiL2Rldi9udWxsIiwgImh0dHA6Ly8xMjcuMC4wLjE6ODA4MS9oZWFsdGgiXQogICAgICBp
bnRlcnZhbDogMzBzCiAgICAgIHRpbWVvdXQ6IDVzCiAgICAgIHJldHJpZXM6IDMKICAgICAgc3Rh
cnRfcGVyaW9kOiA2MHMKICAgICAgc3RhcnRfaW50ZXJ2YWw6IDFzCiAgICByZXN0YXJ0OiB1bmxl
c3Mtc3RvcHBlZAogICAgc3RvcF9zaWduYWw6IFNJR0lOVAogICAgc3RvcF9ncmFjZV9wZXJpb2Q6
IDMwcwogICAgbG9nZ2luZzoge2RyaXZlcjoganNvbi1maWxlLCBvcHRpb25zOiB7bWF4LXNpemU6
IDEwbSwgbWF4LWZpbGU6ICIzIn19Cg==
END
chown root /etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new &&
    chmod 0644 /etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new &&
    mv -f /etc/llamaherd/compose/drafter/compose.yaml.llamaherd-new /etc/llamaherd/compose/drafter/compose.yaml || exit 1

echo "starting llama-drafter in its container: it has 60 s to load its model"
if ! docker compose --progress plain -f /etc/llamaherd/compose/drafter/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 60 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-drafter 2>&1 | cut -c -300 >&2
    echo "llama-drafter did not become healthy within 60 s; its last lines are above, all of them in: docker logs llama-drafter" >&2
    docker compose -f /etc/llamaherd/compose/drafter/compose.yaml stop >/dev/null 2>&1
    exit 1
fi
