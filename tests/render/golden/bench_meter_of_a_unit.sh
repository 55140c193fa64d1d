# Watches this host while its server is measured. What is said to it comes after this script, on the same pipe.
pid=$(systemctl show -P MainPID llama-chat.service 2>/dev/null) spec=''
exec python3 -I - '{"every": 0.2, "lasts": 300, "silence": 60, "most": 67108864, "port": 8080, "metrics": ["http://127.0.0.1:8080/metrics"], "key": "/etc/llamaherd/keys/chat"}' "${pid:-0}" "$spec" "$(systemd-detect-virt 2>/dev/null)" 3<&0 <<'END'
<<< templates/bench/nvml.py: """What NVIDIA's library tells of cards: how they are, what they have spent, and who is on them."""
>>>     return {"t": round((before + after) / 2, 5), "mj": counters, "uj": {}}


<<< templates/bench/tellers.py: """Who tells of cards: NVIDIA's library in a process of its own, or else nvidia-smi. Neither outlives this program."""
>>>             each.end()


<<< templates/bench/in_flight.py: """How many requests a server has, by its own figures."""
>>>     return round(sum(float(number) for number in found)) if found else None


<<< templates/bench/gauges.py: """What a host's kernel tells of a server and of what is around it: files and figures, as they are."""
>>>     return {name.rstrip(":"): int(size) << 10 for name, size, *_ in lines if size.isdigit()}


<<< templates/bench/meter.py: """Watches a host while a server on it is measured: a line of JSON for each reading, until nobody listens any more.
>>>     Meter(asked, here, tellers()).run()


end_with_parent()
asked = json.loads(sys.argv[1])
main(asked, Here(asked, in_flight, int(sys.argv[2]), *sys.argv[3:5]), lambda: Tellers(serve, asked["every"]))
END
