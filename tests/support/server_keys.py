"""A fleet whose servers name no key, and its hosts: an `ssh` of the tests' own is the way there, and all else is real.

What runs there is our program, with a folder for each host in the place of /etc/llamaherd/keys.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.api_keys import KEYS, ServerKey
from llamaherd.pipeline.load import plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.plan import Plan
from tests.support.rigs import GONE, ROOT, changed, cpu_rig

PORTS = {"attic": 2301, "porch": 2302, "six": 2303}
FLEET = """
gateway:
  on: [attic]
  models:
    small: {serve: [porch.chat]}
"""
SSH = f"""#!{sys.executable}
import pathlib, sys

there = pathlib.Path(__file__).parent / sys.argv[sys.argv.index("-p") + 1]
with open(there.parent / "log", "a") as log:
    print(there.name, file=log)
if (there / "gone").exists():
    print("ssh: connect to host porch.lan port 22: Connection refused", file=sys.stderr)
    sys.exit(255)
sys.path.insert(0, {str(ROOT)!r})
from tests.support.ssh_program import read_document, run_program

document = read_document()
if document["verb"] != "llamaherd.files.keys":
    sys.exit("only keys are queried here")
if (there / "lies").exists():
    print('{{"event":"result","value":{{"names":["another"]}}}}')
    sys.exit()
sys.exit(run_program(document, {{"KEYS": there / "keys"}}))
"""


class KeylessFleet:
    """Three rigs and a gateway, and the hosts that they would be on."""

    def __init__(self, folder: Path) -> None:
        """A folder for the fleet, and one for each host."""
        self.folder, self.hosts = folder / "fleet", folder
        self.folder.mkdir()
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o755)
        image = {"kind": "llama.cpp", "image": f"a@sha256:{'ab' * 32}"}
        model = folder / "model.gguf"
        model.touch()
        sent = {"file": str(model), "sha256": "ab" * 32}
        keyless = {
            "instances/chat/listen": "0.0.0.0",
            "instances/chat/api_key": GONE,
            "instances/chat/backend": "compose",
        }
        for name, port in PORTS.items():
            where = {"connect": {"host": f"{name}.lan", "port": port}, "rig": name, "engines/main": image}
            models = {"models/gemma": sent, "models/moe": sent}
            self.declare(f"{name}.yaml", yaml.safe_dump(changed(cpu_rig(), {**where, **models, **keyless})))
            (folder / str(port) / "keys").mkdir(parents=True)
        for name in ("attic", "six"):
            self.open(name, "127.0.0.1")
        self.declare("fleet.yaml", FLEET)

    def declare(self, name: str, text: str) -> None:
        """Write one of its files."""
        (self.folder / name).write_text(text)

    def open(self, rig: str, listen: str = "0.0.0.0") -> None:
        """Have the server of a rig listen there."""
        declared = yaml.safe_load((self.folder / f"{rig}.yaml").read_text())
        self.declare(f"{rig}.yaml", yaml.safe_dump(changed(declared, {"instances/chat/listen": listen})))

    def host(self, rig: str, *, has: str = "", what: str = "") -> None:
        """Have the host of a rig have a server's key, or be `gone`, or one that `lies`."""
        folder = self.hosts / str(PORTS[rig])
        if has:
            (folder / "keys" / has).touch()
        if what:
            (folder / what).touch()

    def plans(
        self, *names: str, making: bool = True, deploying: bool = True
    ) -> tuple[dict[str, Plan], list[ServerKey]]:
        """The plans, and which keys were made for them."""
        made: list[ServerKey] = []
        self.doubts: list[Finding] = []
        planned = plans(
            self.folder,
            all_roles(self.folder),
            names,
            deploying=deploying,
            doubtful=self.doubts.extend,
            of_run=self.doubts.extend,
            made=made.append if making else None,
        )
        return {name: plan for name, (_, plan) in planned.items()}, made

    @property
    def asked(self) -> Sequence[str]:
        """Which hosts were asked."""
        log = self.hosts / "log"
        names = {str(port): name for name, port in PORTS.items()}
        return [names[line] for line in log.read_text().split()] if log.exists() else []

    def key(self, name: str) -> Path:
        """The file of a rig's key."""
        return self.folder / KEYS / name
