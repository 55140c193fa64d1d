# While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
trial=$(mktemp -d) || exit 1
left() {
    [ ! -s "$trial/said" ] || tail -n 5 "$trial/said" | cut -c -300 >&2
    printf '%s\n' "instance drafter: $1; the instance was left as it was" >&2
    rm -rf "$trial"
    exit 1
}
base64 -d >"$trial/compose.yaml" <<'END' || exit 1
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgaW5zdGFuY2UgYGRyYWZ0ZXJgIG9mIHJpZyBgYm94
YDogY2hhbmdlIHRoZSBpbnZlbnRvcnksIG5vdCB0aGlzIGZpbGUuCm5hbWU6IGxsYW1hLWRyYWZ0
ZXIKc2VydmljZXM6CiAgc2VydmVyOgogICAgaW1hZ2U6ICJnaGNyLmlvL2dnbWwtb3JnL2xsYW1h
LmNwcEBzaGEyNTY6ZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZlZmVmZWZl
ZmVmZWZlZmVmZWZlZmVmZWZlZiIKICAgIHB1bGxfcG9saWN5OiBtaXNzaW5nCiAgICBjb250YWlu
ZXJfbmFtZTogbGxhbWEtZHJhZnRlcgogICAgY29tbWFuZDogWyItLW1vZGVsIiwgIi92YXIvbGli
L2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNC9tb2UuZ2d1ZiIsICItLWFs
aWFzIiwgIm1vZSIsICItLWN0eC1zaXplIiwgIjQwOTYiLCAiLS1jYWNoZS10eXBlLWsiLCAiZjE2
IiwgIi0tY2FjaGUtdHlwZS12IiwgImYxNiIsICItLWZsYXNoLWF0dG4iLCAiYXV0byIsICItLXBh
cmFsbGVsIiwgIjEiLCAiLS10aHJlYWRzIiwgIjEiLCAiLS1ob3N0IiwgIjEyNy4wLjAuMSIsICIt
LXBvcnQiLCAiODA4MSIsICItLW1ldHJpY3MiLCAiLS1zcGVjLXR5cGUiLCAiZHJhZnQtbXRwIiwg
Ii0tc3BlYy1kcmFmdC1uLW1heCIsICIyIiwgIi0tYXBpLWtleS1maWxlIiwgIi9ldGMvbGxhbWFo
ZXJkL2tleXMvZHJhZnRlciJdCiAgICBlbnZpcm9ubWVudDogeyJHR01MX0EiOiAiYiBjIn0KICAg
IGxhYmVsczoKICAgICAgbGxhbWFoZXJkLnNwZWM6ICJjMGNlZjRlMTU0MWYiCiAgICAgIGxsYW1h
aGVyZC5wb3J0OiAiODA4MSIKICAgIHVzZXI6ICIyMDkzNjk2MTc2OjIwOTM2OTYxNzYiCiAgICBy
ZWFkX29ubHk6IHRydWUKICAgIGNhcF9kcm9wOiBbQUxMXQogICAgc2VjdXJpdHlfb3B0OiBbIm5v
LW5ldy1wcml2aWxlZ2VzOnRydWUiXQogICAgdG1wZnM6IFsiL3RtcDpzaXplPTY0bSxtb2RlPTE3
NzciXQogICAgIyBFYWNoIGNvbm5lY3Rpb24gaXMgYW4gb3BlbiBmaWxlLCBhbmQgdGhlIGZpcnN0
IDEsMDAwIG9yIHNvIGFyZSBhIHRocmVhZCBlYWNoLgogICAgcGlkc19saW1pdDogNDA5NgogICAg
dWxpbWl0czoge25vZmlsZTogMTYzODR9CiAgICBvb21fc2NvcmVfYWRqOiA1MDAKICAgICMgSXQg
bGlzdGVucyBvbiB0aGUgaG9zdCdzIG93biBsb29wYmFjay4gV2hhdCBEb2NrZXIgcHVibGlzaGVz
IHRoZXJlIGNhbiBiZSByZWFjaGVkIGZyb20gb3V0c2lkZSwgYnkgYSByb3V0ZSB0byB0aGUKICAg
ICMgY29udGFpbmVyJ3MgbmV0d29yayAoRG9ja2VyIGJlZm9yZSAyOCkuCiAgICBuZXR3b3JrX21v
ZGU6IGhvc3QKICAgIHZvbHVtZXM6CiAgICAgIC0ge3R5cGU6IGJpbmQsIHNvdXJjZTogIi92YXIv
bGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNCIsIHRhcmdldDogIi92
YXIvbGliL2xsYW1haGVyZC9tb2RlbHMvbG9jYWwvMDQwNDA0MDQwNDA0MDQwNCIsIHJlYWRfb25s
eTogdHJ1ZSwgYmluZDoge2NyZWF0ZV9ob3N0X3BhdGg6IGZhbHNlfX0KICAgICAgLSB7dHlwZTog
YmluZCwgc291cmNlOiAvZXRjL2xsYW1haGVyZC9rZXlzL2RyYWZ0ZXIsIHRhcmdldDogL2V0Yy9s
bGFtYWhlcmQva2V5cy9kcmFmdGVyLCByZWFkX29ubHk6IHRydWUsIGJpbmQ6IHtjcmVhdGVfaG9z
dF9wYXRoOiBmYWxzZX19CiAgICBoZWFsdGhjaGVjazoKICAgICAgdGVzdDogWyJDTUQiLCAiY3Vy
bCIsICItZnMiLCAiLW8iLCAiL2Rldi9udWxsIiwgImh0dHA6Ly8xMjcuMC4wLjE6ODA4MS9oZWFs
dGgiXQogICAgICBpbnRlcnZhbDogMzBzCiAgICAgIHRpbWVvdXQ6IDVzCiAgICAgIHJldHJpZXM6
IDMKICAgICAgc3RhcnRfcGVyaW9kOiAzMDBzCiAgICAgIHN0YXJ0X2ludGVydmFsOiAxcwogICAg
cmVzdGFydDogdW5sZXNzLXN0b3BwZWQKICAgIHN0b3Bfc2lnbmFsOiBTSUdJTlQKICAgIHN0b3Bf
Z3JhY2VfcGVyaW9kOiAxcwogICAgbG9nZ2luZzoge2RyaXZlcjoganNvbi1maWxlLCBvcHRpb25z
OiB7bWF4LXNpemU6IDEwbSwgbWF4LWZpbGU6ICIzIn19Cg==
END
docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
docker image inspect ghcr.io/ggml-org/llama.cpp@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef >/dev/null 2>&1 || {
    echo 'fetching ghcr.io/ggml-org/llama.cpp@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef'
    docker pull -q ghcr.io/ggml-org/llama.cpp@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef >"$trial/said" 2>&1 || left 'its image cannot be fetched'
}
# It reads all arguments before --version ends it. `timeout`, since one that swallows --version would start the server;
# what does not come up without a GPU says nothing of arguments.
echo placeholder >"$trial/key" && chmod 0644 "$trial/key"
timeout 60 docker run --rm --name llamaherd-trial-drafter --pull never --network none --read-only --tmpfs /tmp --user 2093696176:2093696176 \
    --cap-drop ALL --security-opt no-new-privileges -v /var/lib/llamaherd/models/local/0404040404040404:/var/lib/llamaherd/models/local/0404040404040404:ro -v "$trial/key":/etc/llamaherd/keys/drafter:ro \
-e 'GGML_A=b c' ghcr.io/ggml-org/llama.cpp@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef --model /var/lib/llamaherd/models/local/0404040404040404/moe.gguf --alias moe --ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --flash-attn auto --parallel 1 --threads 1 --host 127.0.0.1 --port 8081 --metrics --spec-type draft-mtp --spec-draft-n-max 2 --api-key-file /etc/llamaherd/keys/drafter --version >"$trial/log" 2>&1 ||
    ! grep -iE '^error.*argument' "$trial/log" >"$trial/said" || { docker rm -f llamaherd-trial-drafter >/dev/null 2>&1; left 'ghcr.io/ggml-org/llama.cpp@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef does not accept its arguments'; }
docker rm -f llamaherd-trial-drafter >/dev/null 2>&1
rm -rf "$trial"
