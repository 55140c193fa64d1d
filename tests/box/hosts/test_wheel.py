"""The whole road with nothing but the wheel: from an empty folder to a host that serves, and no change after it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from box import downloads, tiny_moe
from box.cli import BOX, CACHE, ROOT, TINY_MOE
from box.compiling import OPTIONS
from box.host import BoxHost
from tests.box.bench import HERD, Declared, Ended, run
from tests.box.slot import PACKAGES, PORTS_OF_A_SLOT, SLOT, compiling, slotted
from tests.support.wheel import Installed, install


@dataclass(frozen=True)
class Home:
    """A user's folder, the wheel that they installed, and their host."""

    installed: Installed
    folder: Path
    host: BoxHost

    def run(self, argv: list[str], folder: str = ".") -> Ended:
        """A command in that folder, or in one below it."""
        ended = self.installed.run(argv, self.folder / folder)
        return Ended(ended.returncode, ended.stdout + ended.stderr, 0)

    def rig(self) -> Declared:
        """A fresh host that is to build one engine, and to serve a small model by it."""
        box: Declared = yaml.safe_load((ROOT / "inventory" / "box.yaml").read_text())
        connect = {"port": self.host.port, "key": str(self.host.key), "known_hosts": str(self.host.known_hosts)}
        box["engines"]["main"]["source"]["archive"] = str(CACHE / downloads.LLAMA_CPP.file)
        box["engines"]["main"]["options"] = {**OPTIONS}
        chat = {"engine": "main", "model": "tiny-moe", "context": 4096, "threads": 1, "port": 8080}
        chat |= {"api_key": {"file": "keys/chat"}, "extra_args": "--cache-ram 256"}
        models = {"tiny-moe": box["models"]["tiny-moe"] | {"file": str(TINY_MOE)}}
        return box | {"connect": box["connect"] | connect, "models": models, "instances": {"chat": chat}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A host from nothing, and an empty folder."""
    downloads.fetch(downloads.LLAMA_CPP, CACHE)
    tiny_moe.write(TINY_MOE)
    called = slotted("llamaherd-wheel")
    host = BoxHost(called, 2290 + PORTS_OF_A_SLOT * SLOT, BOX / called, packages=PACKAGES)
    home = Home(install(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("home"), host)
    try:
        host.down()
        host.up()
        yield home
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            host.down()


def test_from_an_empty_folder_to_a_host_that_serves(home: Home) -> None:
    herd = home.installed.herd
    made = home.run(herd("init", "fleet"))
    assert made.code == 0, made.output
    fleet = home.folder / "fleet"
    (fleet / "attic.yaml").unlink()
    (fleet / "box.yaml").write_text(yaml.safe_dump(home.rig()))
    (fleet / "keys").mkdir()
    (fleet / "keys" / "chat").write_text(secrets.token_hex(16))
    for command in ("check", "show", "preflight"):
        said = home.run(herd(command, "-i", "fleet"))
        assert said.code == 0, said.output

    with compiling(home.host, downloads.LLAMA_CPP):
        first = home.run(herd("up", "-v", "-i", "fleet"))
    assert first.code == 0, first.output
    verified = home.installed.run(herd("--json", "verify", "box", "-i", "fleet"), home.folder)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["ok"] is True
    assert "active" in home.host.exec("systemctl", "is-active", "llama-chat")

    again = home.run(home.installed.pyinfra("inventory.py", "deploy.py", "-y"), "fleet")
    assert (again.code, again.changes) == (0, 0), again.output
    checkout = run([HERD, "-i", str(fleet), "up", "-v"], {**os.environ, "PYINFRA_PROGRESS": "off"})
    assert (checkout.code, checkout.changes) == (0, 0), checkout.output
