"""The tutorial about two rigs: real hosts, HAProxy and servers. A host is switched off, and on again.

The two hosts are made for it. Their engine is a finished build of another host, packed as llama.cpp's authors pack
theirs; without one, this lane builds it first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from box.cli import BOX, TINY_MOE
from box.host import BoxHost
from tests.box.named import address, has_engine, internet, named
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted
from tests.box.tutorial import Terminal, steps, terminal
from tests.support.envelope import the_rig
from tests.support.gateway import until

MODELS = {"unsloth/gemma-3-270m-it-GGUF": {"gemma-3-270m-it-Q4_K_M.gguf": TINY_MOE}}
"""The model that the page names, and a small one of the box that stands for it."""
AGAIN = "Switch it on again"
"""The section before which a person switches the host on."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, BoxHost]]:
    """Two bare hosts, by their names."""
    made = {}
    for number, name in enumerate(("attic.lan", "porch.lan"), 2294 + PORTS_OF_A_SLOT * SLOT):
        called = slotted(f"llamaherd-{name.partition('.')[0]}")
        made[name] = BoxHost(called, number, BOX / called, packages=called)
    try:
        for host in made.values():
            host.down()
            host.up()
        yield made
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            for host in made.values():
                host.down()
                packages = f"{host.packages}-apt"
                subprocess.run(["docker", "volume", "rm", "-f", packages], check=False, capture_output=True)


def switch_on(host: BoxHost, known_at: str, typed: Terminal) -> None:
    """Start a host that is off, and wait until the gateway uses its server."""
    host.up()
    if address(host) != known_at:  # another container has started meanwhile
        host.exec("ip", "address", "add", f"{known_at}/16", "dev", "eth0")

    def is_used() -> bool:
        status = the_rig(typed.prints("herd gateway status --json 2>/dev/null"))
        return all(each["state"] == "up" for model in status["models"] for each in model["servers"])

    until(is_used, 60)


def test_each_command_prints_what_the_page_shows(
    request: pytest.FixtureRequest, hosts: dict[str, BoxHost], tmp_path: Path
) -> None:
    if not has_engine(hosts["attic.lan"]):
        request.getfixturevalue("converged")
    page = steps("tutorial_household")
    assert {step.heading for step in page} >= {AGAIN}
    known_at, is_off = address(hosts["porch.lan"]), True
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    within = named(hosts, tmp_path)
    with (
        internet(hosts["attic.lan"], tmp_path, MODELS) as environment,
        terminal(fleet, environment, within) as typed,
    ):
        for step in page:
            if step.heading == AGAIN and is_off:
                switch_on(hosts["porch.lan"], known_at, typed)
                is_off = False
            typed.follows(step)
