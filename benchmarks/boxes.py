"""Hosts that are as planned, as many as are wished: one is deployed to, and the others are made from its image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from box import downloads, tiny_moe
from box.cli import API_KEY, BOX, CACHE, ROOT, TINY_MOE, make_api_key
from box.host import BoxHost
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted

HERD = Path(sys.executable).parent / "herd"
NAME, PORT = slotted("llamaherd-converge"), 2210 + PORTS_OF_A_SLOT * SLOT
IMAGE = f"{NAME}:done"


@contextmanager
def as_planned(most: int, folder: Path) -> Iterator[list[BoxHost]]:
    """So many hosts, each as its rig in `folder` says; removed at the end, with the image that they are made from."""
    downloads.fetch(downloads.LLAMA_CPP, CACHE)
    tiny_moe.write(TINY_MOE)
    make_api_key()
    first = BoxHost(NAME, PORT, BOX / NAME)
    hosts = [BoxHost(f"{NAME}-{n}", PORT + n, BOX / f"{NAME}-{n}", made_from=IMAGE) for n in range(1, most + 1)]
    keep = bool(os.environ.get("LLAMAHERD_KEEP"))
    try:
        if not keep or not _there(IMAGE):
            first.down(report=report)
            first.up(report)
            report("deploying to it; an engine is compiled")
            herd("-i", str(declare(folder, [first])), "up")
            subprocess.run(["docker", "commit", NAME, IMAGE], check=True, stdout=subprocess.DEVNULL)
            first.down(report=report)
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(BoxHost.up, report=report), hosts))
        report(f"{most} hosts from its image after {time.monotonic() - began:.0f} s")
        herd("-i", str(declare(folder, hosts)), "up")
        yield hosts
    finally:
        for host in () if keep else (first, *hosts):
            host.down(report=report)
        if not keep:
            subprocess.run(["docker", "image", "rm", IMAGE], check=False, capture_output=True)


def _there(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], check=False, capture_output=True).returncode == 0


def declare(folder: Path, hosts: Sequence[BoxHost]) -> Path:
    """An inventory of these hosts, each the box's rig: what they have in common stands in `defaults.yaml`.

    Both instances serve the tiny model: twenty hosts that load another at once would keep this machine busy.
    """
    inventory = folder / f"of-{hosts[0].name}-{len(hosts)}"
    inventory.mkdir(exist_ok=True)
    rig: dict[str, Any] = yaml.safe_load((ROOT / "inventory" / "box.yaml").read_text())
    rig["engines"]["main"]["source"]["archive"] = str(CACHE / downloads.LLAMA_CPP.file)
    del rig["models"]["gemma-3-270m"]
    rig["models"]["tiny-moe"]["file"] = str(TINY_MOE)
    rig["instances"]["chat"] |= {"model": "tiny-moe", "api_key": {"file": str(API_KEY)}}
    connect = rig.pop("connect")
    del rig["rig"]
    (inventory / "defaults.yaml").write_text(yaml.safe_dump(rig, sort_keys=False))
    for host in hosts:
        there = connect | {"port": host.port, "key": str(host.key), "known_hosts": str(host.known_hosts)}
        (inventory / f"{host.name}.yaml").write_text(yaml.safe_dump({"rig": host.name, "connect": there}))
    return inventory


def herd(*arguments: str) -> str:
    """What a command prints on stdout. Ends this program where it fails."""
    ended = subprocess.run(
        [HERD, *arguments],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        sys.exit(f"herd {' '.join(arguments)} ended with {ended.returncode}:\n{(ended.stdout + ended.stderr)[-3000:]}")
    return ended.stdout


def plans(inventory: Path) -> dict[str, Any]:
    """The plan of each of its hosts, as a value of JSON."""
    document = json.loads(herd("-i", str(inventory), "show", "--json"))
    return {each["rig"]: each for each in document["rigs"]}


def report(sentence: str) -> None:
    """One line for whoever waits."""
    print(f"converge: {sentence}", file=sys.stderr, flush=True)
