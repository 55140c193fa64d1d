<<< step_project.sh: # While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
>>> base64|  server:
base64|    image: "ghcr.io/ggml-org/llama.cpp@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef"
base64|    pull_policy: missing
base64|    container_name: llama-drafter
base64|    command: ["--model", "/var/lib/llamaherd/models/local/0404040404040404/moe.gguf", "--alias", "moe", "--ctx-size", "4096", "--cache-type-k", "f16", "--cache-type-v", "f16", "--flash-attn", "auto", "--parallel", "1", "--threads", "1", "--host", "127.0.0.1", "--port", "8081", "--metrics", "--spec-type", "draft-mtp", "--spec-draft-n-max", "2", "--api-key-file", "/etc/llamaherd/keys/drafter"]
base64|    environment: {"GGML_A": "b c"}
base64|    labels:
base64|      llamaherd.spec: "c0cef4e1541f"
base64|<<< compose_cpu_with_key.yaml:       llamaherd.port: "8081"
base64|>>>     healthcheck:
base64|      test: ["CMD", "curl", "-fs", "-o", "/dev/null", "http://127.0.0.1:8081/health"]
<<< step_project.sh: base64|      interval: 30s
>>> docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
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
