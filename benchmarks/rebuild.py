"""The rebuild drill: a host with nothing but an operating system, until it serves what the inventory says.

    .venv/bin/python -m benchmarks.rebuild [--cold]

Two throwaway hosts. `warm` has been deployed, and lends its models; `fresh` is made anew, and rebuilt from inventory,
lock and that neighbour. The hub that the models were locked at counts what it is asked for: of `fresh`, nothing.
Printed is how long each part took, and what a second run took. With `--cold`, `fresh` compiles and downloads
packages as a machine does that has never done so; otherwise it shares the caches of `warm`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from box import downloads, tiny_moe
from box.cli import BOX, CACHE, ROOT, TINY_MOE
from box.host import BoxHost
from tests.support.hub_server import Hub

HERD = Path(sys.executable).parent / "herd"
REPO = "drill/models"
OPERATION = re.compile(r"Starting operation: (.*)")


def main() -> None:
    """Run the drill, print the table, and remove both hosts."""
    parser = argparse.ArgumentParser(description="Rebuild a host from nothing, and time it.")
    parser.add_argument("--cold", action="store_true", help="with caches of its own, which are empty")
    cold = parser.parse_args().cold
    for artifact in (downloads.LLAMA_CPP, downloads.GEMMA):
        downloads.fetch(artifact, CACHE)
    tiny_moe.write(TINY_MOE)
    warm = BoxHost(name="llamaherd-warm", port=2260, folder=BOX / "llamaherd-warm")
    caches = "llamaherd-drill" if cold else warm.caches
    fresh = BoxHost(name="llamaherd-fresh", port=2261, folder=BOX / "llamaherd-fresh", caches=caches)
    try:
        with tempfile.TemporaryDirectory() as folder:
            drill(warm, fresh, Path(folder))
    finally:
        warm.down()
        fresh.down(caches=False)
        if cold:
            for volume in fresh.cache_volumes:
                subprocess.run(["docker", "volume", "rm", "-f", volume], check=False, capture_output=True)


def drill(warm: BoxHost, fresh: BoxHost, folder: Path) -> None:
    """All of it, in a folder for the inventory."""
    for host in (warm, fresh):
        host.down()
        # Both once: afterwards there are keys and an image, which no rebuild has to wait for.
        host.up()
    fresh.down()
    gateway = warm.exec("sh", "-c", "ip route show default | cut -d ' ' -f 3").strip()
    files = {"gemma.gguf": CACHE / downloads.GEMMA.file, "moe.gguf": TINY_MOE}
    with Hub({REPO: files}, host=gateway) as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.url, "HERD_INVENTORY": str(folder), "NO_COLOR": "1"}
        environment |= {"PYINFRA_PROGRESS": "off"}
        address = warm.exec("hostname", "-I").split()[0]
        share = {"share": {"address": address, "port": 8970}}
        declare(folder, "warm", warm, share)
        declare(folder, "fresh", fresh, {"from": ["warm", "hub"]})
        herd(environment, "lock")
        herd(environment, "up", "-v", "warm")
        hub.counted.reset()
        began = time.monotonic()
        fresh.up()
        parts = {"the operating system (a container)": time.monotonic() - began}
        parts |= herd(environment, "up", "-v", "fresh")
        parts |= {"verify": sum(herd(environment, "verify", "fresh").values())}
        show(parts, sum(herd(environment, "up", "-v", "fresh").values()), hub.sent)


def declare(folder: Path, name: str, host: BoxHost, store: Mapping[str, Any]) -> None:
    """The box's rig, with its models from the hub."""
    rig = yaml.safe_load((ROOT / "inventory" / "box.yaml").read_text())
    rig |= {"rig": name, "store": store}
    rig["connect"] |= {"port": host.port, "key": str(host.key), "known_hosts": str(host.known_hosts)}
    rig["engines"]["main"]["source"]["archive"] = str(CACHE / downloads.LLAMA_CPP.file)
    rig["models"] = {
        "gemma-3-270m": {"hf": REPO, "files": "gemma.gguf"},
        "tiny-moe": {"hf": REPO, "files": "moe.gguf"},
    }
    del rig["instances"]["chat"]["api_key"]
    (folder / f"{name}.yaml").write_text(json.dumps(rig))


def herd(environment: Mapping[str, str], *arguments: str) -> dict[str, float]:
    """Run a command; returns seconds by operation, and ends this program where it fails."""
    command = [str(HERD), *arguments]
    print(f"drill: herd {' '.join(arguments)}", flush=True)
    seconds: dict[str, float] = {}
    lines, what, since = [], "connect and plan", time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if found := OPERATION.search(line):
                now = time.monotonic()
                seconds[what] = seconds.get(what, 0) + now - since
                what, since = found[1].strip().replace(" | ", ": "), now
    seconds[what] = seconds.get(what, 0) + time.monotonic() - since
    if process.returncode:
        sys.exit(f"herd {' '.join(arguments)} ended with {process.returncode}:\n{''.join(lines[-30:])}")
    return seconds


def show(parts: Mapping[str, float], again: float, asked: int) -> None:
    """Print the table, as Markdown."""
    print("\n| part | seconds |\n| --- | ---: |")
    for part, seconds in parts.items():
        print(f"| {part} | {seconds:.1f} |")
    print(f"| **all** | **{sum(parts.values()):.1f}** |")
    print(f"| a second run | {again:.1f} |")
    print(f"\nThe hub sent {asked} bytes for the rebuild.")


if __name__ == "__main__":
    main()
