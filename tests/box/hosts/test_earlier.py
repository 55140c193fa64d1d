"""A rig that an earlier commit brought up is brought up to date by this one without a restart of a server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from box import downloads, tiny_moe
from box.cli import BOX, CACHE, ROOT, TINY_MOE
from box.host import BoxHost
from tests.box.bench import Bench, Ended
from tests.box.slot import PACKAGES, PORTS_OF_A_SLOT, SLOT, compiling, slotted

EARLIER = "75a26d6ef1d8cbd6d091bf1de21a784d6f7a464f"
"""The last commit before roles became folders: what it brings about, later ones leave as it is."""

HERD = "from llamaherd.__main__ import main; main()"
"""What `herd` runs; where from, the current folder says."""


@dataclass(frozen=True)
class Earlier:
    """A host that serves by systemd and by Compose, and the tree of the commit that brought it up."""

    bench: Bench
    code: Path
    first: Ended

    def running(self) -> dict[str, str]:
        """Which process and which container each instance is, and since when."""
        chat = self.bench.sh("systemctl show -p MainPID,NRestarts,ActiveEnterTimestampMonotonic llama-chat")
        drafter = self.bench.sh("docker inspect -f '{{.Id}} {{.State.Pid}} {{.State.StartedAt}}' llama-drafter")
        return {"chat": chat, "drafter": drafter}


def written(commit: str, folder: Path) -> Path:
    """The tree of a commit as a folder. Skips the test where git does not know the commit."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"git has no commit {commit[:7]} here: {archive.stderr.decode().strip()}")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def python(code: Path, bench: Bench, program: str, *arguments: str) -> Ended:
    """A program of Python's that imports what lies in this folder, whatever is installed."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=code,
        env=bench.environment({"PYTHONPATH": str(code)}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, 0)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Earlier]:
    """A host of its own, as the earlier commit brings it up from nothing. One engine is built, not two."""
    folder = tmp_path_factory.mktemp("earlier")
    code = written(EARLIER, folder / "code")
    for artifact in (downloads.LLAMA_CPP, downloads.GEMMA):
        downloads.fetch(artifact, CACHE)
    tiny_moe.write(TINY_MOE)
    called = slotted("llamaherd-earlier")
    bench = Bench(BoxHost(called, 2292 + PORTS_OF_A_SLOT * SLOT, BOX / called, packages=PACKAGES), folder)
    bench.key_file.write_text("kept-by-both\n")
    bench.key_file.chmod(0o600)
    rig = bench.rig()
    del rig["engines"]["ik"], rig["instances"]["ik-chat"]
    rig["host"]["cpu"].pop("amx", None)  # a key that the earlier code does not know
    bench.declare(rig)
    keep = bool(os.environ.get("LLAMAHERD_KEEP"))
    try:
        if not keep:
            bench.host.down()
        bench.host.up()
        with compiling(bench.host, downloads.LLAMA_CPP):
            first = python(code, bench, HERD, "up")
        assert first.code == 0, first.output
        yield Earlier(bench, code, first)
    finally:
        if not keep:
            bench.host.down()


def test_it_was_the_earlier_code_that_ran(earlier: Earlier) -> None:
    """Or the next test compares this tree with itself."""
    asked = python(earlier.code, earlier.bench, "import llamaherd, roles; print(llamaherd.__file__, roles.__file__)")
    assert asked.code == 0, asked.output
    assert all(Path(file).is_relative_to(earlier.code) for file in asked.output.split()), asked.output
    assert "Grand total" in earlier.first.output


def test_nothing_restarts_and_the_second_run_changes_nothing(earlier: Earlier) -> None:
    """The first brings programs that watch servers, and lets systemd restart a server that exits with 0."""
    running = earlier.running()
    first = earlier.bench.up("--yes")
    assert first.code == 0, first.output
    assert "restart server" not in first.output
    assert "Restart=always" in earlier.bench.sh("systemctl cat llama-chat.service")
    assert earlier.running() == running
    second = earlier.bench.up()
    assert (second.code, second.changes) == (0, 0), second.output
    assert earlier.running() == running
    verified = earlier.bench.herd("verify", "box")
    assert verified.code == 0, verified.output


def test_a_restart_would_be_seen(earlier: Earlier) -> None:
    before = earlier.running()
    earlier.bench.sh("systemctl restart llama-chat; docker restart llama-drafter")
    now = earlier.running()
    assert [name for name in now if now[name] == before[name]] == []
