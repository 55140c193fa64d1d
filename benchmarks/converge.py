"""What a run with nothing to do costs: ours, and plain pyinfra keeping the same files and services.

    scripts/box && .venv/bin/python benchmarks/converge.py [ROUNDS]

Both run against the box, one after the other in each round. Printed are the medians of seconds and of SSH execs, as
the box's own sshd counts them, and their ratios. The plain deploy does less: it knows nothing of builds, models,
containers and restarts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from box import cli
from llamaherd.pipeline.load import plans

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / cli.INVENTORY

PLAIN = """
from io import StringIO
from pyinfra import host
from pyinfra.operations import apt, files, server, systemd

plan = host.data.plan
apt.packages(name="packages", packages=plan["packages"], _sudo=True)
for user in host.loop(["llama", "llama-build"]):
    server.user(name=user, user=user, system=True, home="/nonexistent", create_home=False,
                shell="/usr/sbin/nologin", _sudo=True)
for file in host.loop([*plan["files"], *(instance["file"] for instance in plan["instances"])]):
    files.put(name=file["path"], src=StringIO(file["text"]), dest=file["path"], mode=file["mode"], _sudo=True)
for instance in host.loop([i for i in plan["instances"] if i["backend"] == "systemd"]):
    systemd.service(name=instance["service"], service=instance["service"], running=True, enabled=True, _sudo=True)
"""


def main() -> None:
    """Run both by turns and print the comparison."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    plans(INVENTORY, deploying=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "plain.py")
        plain.write_text(PLAIN, encoding="utf-8")
        deploys = {"llamaherd": ROOT / "deploy.py", "plain pyinfra": plain}
        measured: dict[str, list[tuple[float, int]]] = {name: [] for name in deploys}
        for _ in range(rounds):
            for name, deploy in deploys.items():
                measured[name].append(_cost(deploy))
    medians = {
        name: (statistics.median(s for s, _ in costs), statistics.median(e for _, e in costs))
        for name, costs in measured.items()
    }
    for name, (seconds, execs) in medians.items():
        print(f"{name:14} {seconds:6.2f} s {execs:6.0f} execs")
    (ours_s, ours_e), (plain_s, plain_e) = medians["llamaherd"], medians["plain pyinfra"]
    print(f"{'ratio':14} {ours_s / plain_s:6.2f}   {ours_e / plain_e:6.2f}")


def _cost(deploy: Path) -> tuple[float, int]:
    """Seconds and SSH execs of one run."""
    before = _execs()
    began = time.monotonic()
    subprocess.run(
        [Path(sys.executable).parent / "pyinfra", "inventory.py", str(deploy), "-y"],
        cwd=ROOT,
        env={**os.environ, "HERD_INVENTORY": str(INVENTORY), "PYINFRA_PROGRESS": "off"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began, _execs() - before


def _execs() -> int:
    journal = cli.host().exec("journalctl", "-q", "-t", "sshd-session", "-o", "cat")
    return journal.count("Starting session")


if __name__ == "__main__":
    main()
