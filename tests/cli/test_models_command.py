"""`herd models` and `herd verify --deep` as they are typed, with this machine as the rig."""

from __future__ import annotations

import hashlib
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete

from llamaherd.cli.herd import main
from tests.support.envelope import envelope
from tests.support.stores import manifest_line, needs_root

pytestmark = needs_root

HERD = str(Path(sys.executable).parent / "herd")
ALONE = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
"""With locks of its own: those of this machine lie in /run, and another run of the tests may hold them."""
UNIGNORED = ["env", "--default-signal=INT"]
"""Who runs tests in the background may have Ctrl-C ignored, and that is inherited."""
OLD = "ab" * 20
WEIGHTS = b"weights" * 1000
SHA = hashlib.sha256(WEIGHTS).hexdigest()


@dataclass(frozen=True)
class Bench:
    """An inventory of one rig, which is this machine, and its store."""

    root: Path

    @property
    def store(self) -> Path:
        """Where models lie."""
        return self.root / "store"

    @property
    def inventory(self) -> Path:
        """The folder of rigs."""
        return self.root / "inventory"

    @property
    def model(self) -> Path:
        """The file of the model that is declared."""
        return self.store / "local" / SHA[:16] / "m.gguf"

    def declare(self, name: str, connect: object, store: str = "") -> None:
        """A rig of this inventory."""
        declared = {
            "rig": name,
            "connect": connect,
            "host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"},
            "store": {"path": store or str(self.store)},
            "engines": {"main": {"kind": "llama.cpp", "source": {"git": "https://x.lan/e", "commit": "0" * 40}}},
            "models": {"m": {"file": str(self.root / "m.gguf"), "sha256": SHA}},
            "instances": {"chat": {"engine": "main", "model": "m", "context": 4096, "port": 18089}},
        }
        (self.inventory / f"{name}.yaml").write_text(yaml.safe_dump(declared))

    def put(self, file: Path, content: bytes = WEIGHTS) -> None:
        """A file in the store, vouched for."""
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        (file.parent / ".manifest").write_text(manifest_line(file, SHA))

    def argv(self, *words: str) -> list[str]:
        """The command."""
        return [*ALONE, HERD, "-i", str(self.inventory), *words]

    def herd(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end, with no terminal."""
        ended = subprocess.run(self.argv(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "Traceback" not in ended.stderr
        return ended

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """Return the rows of the rigs that it prints as JSON."""
        return list(envelope(self.herd(*words, "--json").stdout)["rigs"])


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Not under /tmp, which no store may be."""
    root = Path(tempfile.mkdtemp(prefix="llamaherd-test-", dir="/srv"))
    made = Bench(root)
    made.inventory.mkdir()
    (root / "m.gguf").write_bytes(WEIGHTS)
    made.declare("here", "local")
    made.put(made.model)
    made.put(made.store / f"org/name/{OLD}/old.gguf")
    yield made
    shutil.rmtree(root)


def test_the_list_for_people(bench: Bench) -> None:
    said = bench.herd("models")
    assert said.returncode == 0, said.stderr
    assert f"here: {bench.store}, " in said.stdout
    lines = {line.split()[0]: line.split()[1:] for line in said.stdout.splitlines() if line.strip()}
    assert lines[f"local/{SHA[:16]}"] == ["7.0", "kB", "1", "whole", "chat"]
    assert lines[f"org/name/{OLD}"] == ["7.0", "kB", "1", "whole", "unused"]
    assert "`herd models prune here` would free " in said.stdout


def test_the_list_for_machines(bench: Bench) -> None:
    (holdings,) = bench.rows("models", "here")
    assert (holdings["rig"], holdings["fetch"], holdings["parts"]) == ("here", None, [])
    used, unused = holdings["revisions"]
    assert used["users"] == [{"kind": "instance", "name": "chat"}]
    assert unused == {
        "folder": f"org/name/{OLD}",
        "state": "whole",
        "files": 1,
        "size": 7000,
        "linked": 0,
        "users": [],
    }
    (same,) = bench.rows("models")
    assert same | {"free": holdings["free"]} == holdings


def test_a_rig_that_cannot_be_reached_leaves_the_others_be(bench: Bench) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        bench.declare("away", {"host": "127.0.0.1", "port": held.getsockname()[1]})
        listed, pruned = bench.herd("models"), bench.herd("models", "prune", "--yes")
        machines = bench.rows("models")
    for said in (listed, pruned):
        assert said.returncode == 1
        assert "\naway: nothing listens for SSH at 127.0.0.1 port" in f"\n{said.stderr}"
        assert "\n  help: " in said.stderr
        assert f"org/name/{OLD}" in said.stdout
    assert [value["rig"] for value in machines if "error" in value] == ["away"]
    assert not (bench.store / "org").exists()


def test_nothing_goes_without_being_asked_for(bench: Bench) -> None:
    refused = bench.herd("models", "prune")
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: removing models needs a confirmation, and this is no terminal\n"
        "  help: run it with `--dry-run` to see what would be removed, then with `--yes`\n"
    )
    shown = bench.herd("models", "prune", "--dry-run")
    assert shown.returncode == 0
    assert f"org/name/{OLD}" in shown.stdout
    (machines,) = bench.rows("models", "prune", "here", "--dry-run")
    assert machines["outcome"] is None
    assert [removal["what"] for removal in machines["removals"]] == [f"org/name/{OLD}"]
    assert (bench.store / f"org/name/{OLD}/old.gguf").exists()


def test_what_is_unused_goes_and_the_next_time_there_is_nothing(bench: Bench) -> None:
    (first,) = bench.rows("models", "prune", "here", "--yes")
    assert first["outcome"] == {"removed": [f"org/name/{OLD}"], "kept": {}, "busy": None}
    assert not (bench.store / "org").exists()
    assert bench.model.exists()
    again = bench.herd("models", "prune")
    assert again.returncode == 2
    again = bench.herd("models", "prune", "--yes")
    assert (again.returncode, again.stdout) == (0, "here: nothing to remove\n")


@pytest.mark.parametrize(
    ("typed", "code", "said", "gone"),
    [
        (b"y\n", 0, f"removed org/name/{OLD}", True),
        (b"\n", 0, "nothing was removed", False),
        (b"\x03", 130, "interrupted", False),
    ],
)
def test_it_asks(bench: Bench, typed: bytes, code: int, said: str, gone: bool) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("env", [*UNIGNORED, *bench.argv("models", "prune")])
    out = b""
    with suppress(OSError):  # the terminal's end
        while True:
            # A Ctrl-C between the question and the wait for an answer is lost on readline: people press it again.
            if b"[y/N]: " in out and not select([terminal], [], [], 0.5)[0]:
                os.write(terminal, typed if out.endswith(b"[y/N]: ") or typed == b"\x03" else b"")
                continue
            if not (piece := os.read(terminal, 4096)):
                break
            out += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert said in out.decode()
    assert "Traceback" not in out.decode()
    assert (bench.store / "org").exists() is not gone


def test_verify_deep_finds_damage_and_says_what_to_do(bench: Bench) -> None:
    (model,) = bench.rows("verify", "--deep", "here")[0]["models"]
    assert model["ok"] is True
    assert model["files"] == [{"name": "m.gguf", "status": "ok", "detail": "", "dropped": False}]
    bench.model.write_bytes(WEIGHTS[:-1] + b"x")
    said = bench.herd("verify", "--deep", "here")
    assert said.returncode == 1
    assert "m.gguf is damaged: its sha256 is " in said.stdout
    assert "help: its hash is no longer listed: `herd up here` fetches it again" in said.stdout
    assert bench.model.with_name(".manifest").read_text() == ""
    (model,) = bench.rows("verify", "--deep", "here")[0]["models"]
    assert (model["ok"], model["files"][0]["status"]) == (False, "damaged")
    (listed, _) = bench.rows("models", "here")[0]["revisions"]
    assert listed["state"] == "unfinished"
    bench.model.unlink()
    assert "m.gguf is missing: it does not exist" in bench.herd("verify", "--deep", "here").stdout


def test_verify_begins_with_a_line_for_each_rig(bench: Bench) -> None:
    bench.declare("off", {"host": "127.0.0.1", "port": 1})
    found = bench.herd("verify")
    assert found.returncode == 1
    first, *problems = found.stdout.splitlines()
    assert first.startswith("here: 0 of 1 servers respond; ")
    assert "    ✗ process   no process runs" in problems
    assert not [line for line in problems if "✓" in line]
    assert "\noff: " in found.stderr
    whole = bench.herd("verify", "-v", "here").stdout
    assert whole.splitlines()[0] == first
    assert "    ✓ " in whole


def test_verify_without_deep_reads_no_model(bench: Bench) -> None:
    bench.model.write_bytes(WEIGHTS[:-1] + b"x")
    assert "models" not in bench.rows("verify", "here")[0]
    assert bench.model.with_name(".manifest").read_text()


def test_verify_deep_tells_how_far_it_is_and_can_be_interrupted(bench: Bench) -> None:
    os.truncate(bench.model, 200 << 30)  # a hole: no disk is that patient, and none is used
    (bench.root / "m.gguf").unlink()  # the size that the controller's file has is not asked for
    process = subprocess.Popen(
        [*UNIGNORED, *bench.argv("verify", "--deep")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr
    for line in process.stderr:
        if line.startswith("here: hashed "):
            break
    assert "of 215 GB at " in line
    os.killpg(process.pid, signal.SIGINT)
    # All of it would take minutes on any machine.
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err == "interrupted\n"
    # The script there ends it once it runs again: a bound, far below the minutes that reading takes.
    for _ in range(3000):
        if not (reading := [pid for pid in Path("/proc").glob("[0-9]*") if is_reading(pid, bench.model)]):
            break
        time.sleep(0.1)
    assert reading == []


def is_reading(process: Path, file: Path) -> bool:
    try:
        return any(each.readlink() == file for each in (process / "fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["models"], "", {"list", "prune", "here"}),
        (["models"], "h", {"here"}),
        (["models"], "--j", {"--json"}),
        (["models", "here"], "h", {"here"}),
        (["models", "prune"], "h", {"here"}),
        (["models", "prune"], "--y", {"--yes"}),
        (["verify"], "--d", {"--deep"}),
    ],
)
def test_a_shell_completes_commands_and_rigs(
    bench: Bench, words: list[str], incomplete: str, offered: set[str]
) -> None:
    shell = ShellComplete(main, {}, "herd", "_HERD_COMPLETE")
    found = shell.get_completions(["-i", str(bench.inventory), *words], incomplete)
    assert {item.value for item in found} == offered
