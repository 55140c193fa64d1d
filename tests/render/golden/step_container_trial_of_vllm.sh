<<< step_project.sh: # While the old server answers: Compose reads the new file, the image is brought, and its engine asked about the arguments.
>>>     [ ! -s "$trial/said" ] || tail -n 5 "$trial/said" | cut -c -300 >&2
    printf '%s\n' "instance v: $1; the instance was left as it was" >&2
<<< step_project.sh:     rm -rf "$trial"
>>> base64 -d >"$trial/compose.yaml" <<'END' || exit 1
base64|<<< compose_vllm.yaml: # Written by llamaherd for instance `v` of rig `duo`: change the inventory, not this file.
base64|>>>           devices: [{driver: cdi, device_ids: ["nvidia.com/gpu=GPU-5090"], capabilities: [gpu]}]
END
docker compose -f "$trial/compose.yaml" config -q >"$trial/said" 2>&1 || left 'Compose does not take its file'
docker image inspect vllm/vllm-openai@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef >/dev/null 2>&1 || {
    echo 'fetching vllm/vllm-openai@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef'
    docker pull -q vllm/vllm-openai@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef >"$trial/said" 2>&1 || left 'its image cannot be fetched'
}
rm -rf "$trial"
