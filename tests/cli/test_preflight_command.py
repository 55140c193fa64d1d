"""`herd preflight` as it is typed, with this machine as one rig, and another that nobody answers at."""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from tests.support.envelope import envelope, the_rig
from tests.support.stores import needs_root

pytestmark = needs_root

RELEASE = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
OS = "{ID}-{VERSION_ID}".format(**{name: value.strip('"') for name, value in RELEASE.items()})
MEMORY = int(Path("/proc/meminfo").read_text().split()[1]) >> 10


class Bench:
    """An inventory whose rigs are added one by one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "inventory").mkdir()

    def declare(self, name: str, connect: object, **changes: Any) -> None:
        """A rig that serves one file on the CPU."""
        declared = {
            "rig": name,
            "connect": connect,
            "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": f"{MEMORY}MiB"},
            "store": {"path": str(self.root / "store")},
            "engines": {"main": {"kind": "llama.cpp", "source": {"git": "https://x.lan/e", "commit": "0" * 40}}},
            "models": {"m": {"file": str(self.root / "m.gguf"), "sha256": "ab" * 32}},
            "instances": {"chat": {"engine": "main", "model": "m", "context": 4096, "port": 18089}},
        } | changes
        (self.root / "inventory" / f"{name}.yaml").write_text(yaml.safe_dump(declared))

    def herd(self, *words: str) -> Result:
        """Run it to its end, with no terminal."""
        ended = CliRunner().invoke(main, ["-i", str(self.root / "inventory"), *words])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Not under /tmp, which no store may be."""
    root = Path(tempfile.mkdtemp(prefix="llamaherd-test-", dir="/srv"))
    yield Bench(root)
    shutil.rmtree(root)


def rows(said: Result) -> dict[str, dict[str, str]]:
    """The rows of the one rig that was asked, by what they are about."""
    rig = the_rig(said.stdout)
    return {row["what"]: row for row in rig["rows"]}


@pytest.mark.usefixtures("starts_processes")
def test_this_machine(bench: Bench) -> None:
    bench.declare("here", "local")
    said = bench.herd("preflight", "here", "--json")
    found = rows(said)
    assert found["system"]["found"].startswith(f"{OS} ")
    assert found["kernel"]["found"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert found["RAM"]["verdict"] == "ok"
    value = envelope(said.stdout)
    assert value["ok"] is (said.exit_code == 0) is value["rigs"][0]["ok"]
    assert (found["system"]["verdict"] == "refused") is (OS != "debian-13")
    assert (found["systemd"]["verdict"] == "refused") is not Path("/run/systemd/system").is_dir()
    assert not (bench.root / "store").exists()


@pytest.mark.usefixtures("starts_processes")
def test_a_table_for_people_is_plain_text_where_nobody_looks_on(bench: Bench) -> None:
    bench.declare("here", "local", host={"os": "ubuntu-26.04", "cpu": {"cores": 2}, "ram": f"{MEMORY}MiB"})
    said = bench.herd("preflight")
    assert said.exit_code == 1
    assert "\x1b" not in said.stdout
    assert re.search(rf"^ *system +{re.escape(OS)} .* ubuntu-26.04 +refused *$", said.stdout, re.MULTILINE)
    assert (
        f"refused: this host runs {OS}, but the inventory declares ubuntu-26.04\n  help: correct `host.os`"
        in said.stdout
    )


def test_a_rig_that_cannot_be_reached_is_one_row_and_leaves_the_others_be(bench: Bench) -> None:
    bench.declare("here", "local")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        bench.declare("away", {"host": "127.0.0.1", "port": held.getsockname()[1]})
        people, machines = bench.herd("preflight"), bench.herd("preflight", "--json")
    assert (people.exit_code, machines.exit_code) == (1, 1)
    assert "refused: nothing listens for SSH at 127.0.0.1 port" in people.stdout
    assert "\nhere\n" in people.stdout
    away, here = json.loads(machines.stdout)["rigs"]
    assert [row["what"] for row in away["rows"]] == ["host"]
    assert len(here["rows"]) > 5


def test_wrong_usage_and_a_bad_inventory(bench: Bench) -> None:
    bench.declare("here", "local")
    assert bench.herd("preflight", "nobody").exit_code == 2
    bench.declare("here", "local", host={"os": "amiga"})
    assert bench.herd("preflight").exit_code == 2


def test_a_shell_completes_it(bench: Bench) -> None:
    bench.declare("here", "local")
    shell = ShellComplete(main, {}, "herd", "_HERD_COMPLETE")
    words = ["-i", str(bench.root / "inventory")]
    assert [item.value for item in shell.get_completions(words, "pref")] == ["preflight"]
    assert [item.value for item in shell.get_completions([*words, "preflight"], "h")] == ["here"]
    assert "--json" in [item.value for item in shell.get_completions([*words, "preflight"], "--")]
