# Watches this host while its server is measured. What is said to it comes after this script, on the same pipe.
set -- $(timeout 20 docker inspect --type container --format '{{.State.Pid}} {{index .Config.Labels "llamaherd.spec"}}' llama-drafter 2>/dev/null)
pid=${1:-} spec=${2:-}
exec python3 -I - '{"every": 1.0, "lasts": 7200, "silence": 60, "most": 67108864, "port": 8081, "metrics": ["http://127.0.0.1:8081/metrics"], "key": "/etc/llamaherd/keys/drafter"}' "${pid:-0}" "$spec" "$(systemd-detect-virt 2>/dev/null)" 3<&0 <<'END'
<<< bench_meter_of_a_unit.sh: """What NVIDIA's library tells of cards: how they are, what they have spent, and who is on them."""
>>> main(asked, Here(asked, in_flight, int(sys.argv[2]), *sys.argv[3:5]), lambda: Tellers(serve, asked["every"]))
