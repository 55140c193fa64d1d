# Watches this host while its server is measured. What is said to it comes after this script, on the same pipe.
pid=$(systemctl show -P MainPID llama-card.service 2>/dev/null) spec=''
# Of a server that has several models in turn, what is watched is the process of this one: it ends with a swap.
router=${pid:-0} pid=0
for child in $(cat "/proc/$router/task/"*/children 2>/dev/null); do
    named=$(tr '\0' '\n' <"/proc/$child/cmdline" 2>/dev/null | grep -x -A 1 -e --alias | tail -n 1)
    [ "$named" != gemma ] || pid=$child
done
exec python3 -I - '{"every": 0.2, "lasts": 300, "silence": 60, "most": 67108864, "port": 8010, "metrics": ["http://127.0.0.1:8010/metrics?model=gemma&autoload=false"], "key": "/etc/llamaherd/keys/card"}' "${pid:-0}" "$spec" "$(systemd-detect-virt 2>/dev/null)" 3<&0 <<'END'
<<< bench_meter_of_a_unit.sh: """What NVIDIA's library tells of cards: how they are, what they have spent, and who is on them."""
>>> main(asked, Here(asked, in_flight, int(sys.argv[2]), *sys.argv[3:5]), lambda: Tellers(serve, asked["every"]))
