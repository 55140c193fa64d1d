"""A server that has no room in RAM: it is known before the one that runs is stopped."""

from __future__ import annotations

from tests.box.bench import Bench

LIMIT = """
group=$(sed -n 's/^[0-9]*:memory://p; s/^0:://p' "/proc/$(systemctl show -P MainPID llama-chat)/cgroup" | head -n 1)
cd "/sys/fs/cgroup/memory${group%/*}" 2>/dev/null || cd "/sys/fs/cgroup${group%/*}" || exit 1
used=$(cat memory.usage_in_bytes memory.current 2>/dev/null)
total=$(grep -o -m 1 '^total_' memory.stat)
files=$(awk -v of="^${total}(active|inactive)_file$" '$1 ~ of { sum += $2 } END { printf "%d", sum }' memory.stat)
systemctl set-property --runtime system.slice MemoryMax=$((used - files + 1400 * 1024 * 1024))
"""
"""Holds all servers and services to what they take now, and 1,400 MiB more."""

HOG = "x = b'x' * (1 << 30); __import__('time').sleep(600)"


def test_a_server_that_has_no_room_in_ram(bench: Bench) -> None:
    """Its cache is 1.2 GB: there is room for that, until something else takes a GiB of it."""
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["chat"] |= {"context": 65536, "parallel": 2, "kv": "f16"}
    rig["instances"]["chat"]["extra_args"] += ["--swa-full"]
    bench.declare(rig)
    (chat,) = (each for each in bench.plan()["instances"] if each["name"] == "chat")
    assert 1.2e9 < chat["memory"]["resident"] < 1.8e9
    try:
        bench.sh(LIMIT)
        bench.sh(f'systemd-run -q --unit=hog python3 -c "{HOG}"; sleep 5')
        ended = bench.up("--yes")
        assert ended.code == 1, ended.output
        assert "llama-chat is left as it is: /" in ended.output
        assert "system.slice is limited, and has " in ended.output
        assert " of RAM for it, and it takes 1." in ended.output
        assert "; python3 (process " in ended.output
        bench.unchanged(before)
        assert bench.answers("chat")
        # It is nobody's fault that is declared: it is tried again as soon as there is room.
        bench.sh("systemctl stop hog")
        ended = bench.up("--yes")
        assert ended.code == 0, ended.output
        bench.unchanged(before, "chat")
    finally:
        bench.sh("systemctl stop hog; systemctl revert system.slice", check=False)
        bench.declare(bench.rig())
        bench.up("--yes")
