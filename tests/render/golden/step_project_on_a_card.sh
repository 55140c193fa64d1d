exec 8>/run/llamaherd.lock && flock 8 || exit 1  # two runs at once would restart each other's servers
systemctl -q is-active docker || systemctl start docker || exit 1
# The engine itself says whether it understands these arguments: it reads them all before --version ends it.
# `timeout`, since an argument that swallows --version would start the server.
key=$(mktemp) && echo placeholder >"$key" && chmod 0644 "$key"
said=$(timeout 20 setpriv --reuid llama --regid llama --clear-groups --no-new-privs \
    env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 12 --host 0.0.0.0 --port 8004 --metrics --gpu-layers all --version 2>&1)
rc=$?
rm -f "$key"
if [ $rc != 0 ] || ! printf '%s\n' "$said" | grep -q '^version:'; then
    printf '%s\n' "$said" | grep -i error | head -n 5 >&2
    echo "instance boxed: /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server does not accept its arguments; the instance was left as it was" >&2
    exit 1
fi

# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
[ -d /etc/llamaherd/compose/boxed ] || (umask 022 && mkdir -p /etc/llamaherd/compose/boxed)
base64 -d >/etc/llamaherd/compose/boxed/compose.yaml.llamaherd-new <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGJveGVkYCBvZiByaWcgYGR1b2A6
IGNoYW5nZSB0aGUgaW52ZW50b3J5LCBub3QgdGhpcyBmaWxlLgpuYW1lOiBsbGFtYS1ib3hlZApz
ZXJ2aWNlczoKICBzZXJ2ZXI6CiAgICBpbWFnZTogImxsYW1haGVyZC9lbmdpbmU6bGxhbWEuY3Bw
LTFlNWE0YzMyMTAyMy01NDU1NzUiCiAgICBwdWxsX3BvbGljeTogbmV2ZXIKICAgIGNvbnRhaW5l
cl9uYW1lOiBsbGFtYS1ib3hlZAogICAgZW50cnlwb2ludDogWyIvdXNyL2xvY2FsL2Jpbi9sbGFt
YS1zZXJ2ZXIiXQogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGliL2xsYW1haGVyZC9t
b2RlbHMvbG9jYWwvYTVhNWE1YTVhNWE1YTVhNS9nZW1tYS5nZ3VmIiwgIi0tYWxpYXMiLCAiZ2Vt
bWEiLCAiLS1jdHgtc2l6ZSIsICI0MDk2IiwgIi0tY2FjaGUtdHlwZS1rIiwgImYxNiIsICItLWNh
Y2hlLXR5cGUtdiIsICJmMTYiLCAiLS1mbGFzaC1hdHRuIiwgImF1dG8iLCAiLS1wYXJhbGxlbCIs
ICIxIiwgIi0tdGhyZWFkcyIsICIxMiIsICItLWhvc3QiLCAiMC4wLjAuMCIsICItLXBvcnQiLCAi
ODAwNCIsICItLW1ldHJpY3MiLCAiLS1ncHUtbGF5ZXJzIiwgImFsbCJdCiAgICBlbnZpcm9ubWVu
dDogeyJDVURBX0RFVklDRV9PUkRFUiI6ICJQQ0lfQlVTX0lEIiwgIkNVREFfVklTSUJMRV9ERVZJ
Q0VTIjogIkdQVS01MDkwIn0KICAgIGxhYmVsczoKICAgICAgbGxhbWFoZXJkLnNwZWM6ICI0ODE4
OTY5ZDQ5MGIiCiAgICB1c2VyOiAiNjU1MzI6NjU1MzIiCiAgICByZWFkX29ubHk6IHRydWUKICAg
IGNhcF9kcm9wOiBbQUxMXQogICAgc2VjdXJpdHlfb3B0OiBbIm5vLW5ldy1wcml2aWxlZ2VzOnRy
dWUiXQogICAgdG1wZnM6IFsiL3RtcDpzaXplPTY0bSxtb2RlPTE3NzciXQogICAgcGlkc19saW1p
dDogNTEyCiAgICBvb21fc2NvcmVfYWRqOiA1MDAKICAgIHBvcnRzOgogICAgICAtIHtob3N0X2lw
OiAiMTI3LjAuMC4xIiwgcHVibGlzaGVkOiAiODAwNCIsIHRhcmdldDogODAwNCwgcHJvdG9jb2w6
IHRjcH0KICAgIHZvbHVtZXM6CiAgICAgIC0ge3R5cGU6IGJpbmQsIHNvdXJjZTogIi92YXIvbGli
L2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvYTVhNWE1YTVhNWE1YTVhNSIsIHRhcmdldDogIi92YXIv
bGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvYTVhNWE1YTVhNWE1YTVhNSIsIHJlYWRfb25seTog
dHJ1ZSwgYmluZDoge2NyZWF0ZV9ob3N0X3BhdGg6IGZhbHNlfX0KICAgIGhlYWx0aGNoZWNrOgog
ICAgICB0ZXN0OiBbIkNNRCIsICIvdXNyL2Jpbi9idXN5Ym94IiwgIndnZXQiLCAiLXEiLCAiLU8i
LCAiL2Rldi9udWxsIiwgImh0dHA6Ly8xMjcuMC4wLjE6ODAwNC9oZWFsdGgiXQogICAgICBpbnRl
cnZhbDogMzBzCiAgICAgIHRpbWVvdXQ6IDVzCiAgICAgIHJldHJpZXM6IDMKICAgICAgc3RhcnRf
cGVyaW9kOiAzMDBzCiAgICAgIHN0YXJ0X2ludGVydmFsOiAxcwogICAgcmVzdGFydDogdW5sZXNz
LXN0b3BwZWQKICAgIHN0b3Bfc2lnbmFsOiBTSUdJTlQKICAgIHN0b3BfZ3JhY2VfcGVyaW9kOiAz
MHMKICAgIGxvZ2dpbmc6IHtkcml2ZXI6IGpzb24tZmlsZSwgb3B0aW9uczoge21heC1zaXplOiAx
MG0sIG1heC1maWxlOiAiMyJ9fQogICAgZGVwbG95OgogICAgICByZXNvdXJjZXM6CiAgICAgICAg
cmVzZXJ2YXRpb25zOgogICAgICAgICAgIyBCeSBDREk6IHdoYXQgaXQgZ2l2ZXMgYSBjb250YWlu
ZXIgc3RheXMgZ2l2ZW4gd2hlbiBzeXN0ZW1kIHJlYWRzIGl0cyB1bml0cyBhbmV3LgogICAgICAg
ICAgZGV2aWNlczogW3tkcml2ZXI6IGNkaSwgZGV2aWNlX2lkczogWyJudmlkaWEuY29tL2dwdT1H
UFUtNTA5MCJdLCBjYXBhYmlsaXRpZXM6IFtncHVdfV0K
END
chown root /etc/llamaherd/compose/boxed/compose.yaml.llamaherd-new &&
    chmod 0644 /etc/llamaherd/compose/boxed/compose.yaml.llamaherd-new &&
    mv -f /etc/llamaherd/compose/boxed/compose.yaml.llamaherd-new /etc/llamaherd/compose/boxed/compose.yaml || exit 1

began=$(date +%s)
echo "starting llama-boxed in its container: it has 300 s to load its model"
if ! docker compose --progress plain -f /etc/llamaherd/compose/boxed/compose.yaml up -d --force-recreate --remove-orphans \
    --wait --wait-timeout 300 >/run/llamaherd-compose.log 2>&1; then
    tail -n 5 /run/llamaherd-compose.log | cut -c -300 >&2
    docker logs --tail 20 llama-boxed 2>&1 | cut -c -300 >&2
    echo "llama-boxed is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llama-boxed" >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    exit 1
fi
# Healthy is not enough: without CUDA it serves from the CPU, and is as healthy.
if ! /opt/llamaherd/libexec/gpu-check every 'docker logs llama-boxed 2>&1' \
    "$(docker inspect --type container --format '{{.State.Pid}}' llama-boxed) $(docker top llama-boxed -eo pid 2>/dev/null | sed 1d)" GPU-5090; then
    docker logs llama-boxed 2>&1 | grep -i cuda | head -n 3 | cut -c -300 >&2
    docker compose -f /etc/llamaherd/compose/boxed/compose.yaml stop >/dev/null 2>&1
    exit 1
fi
