"""Whether GPUs have room for what comes, by what the driver says: nvidia-smi is faked, as it answers on an H100."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llamaherd.plan import Estimate, Holds
from llamaherd.resources import ROOT
from roles.serve.onhost.model import GpuNeed
from roles.serve.transaction import gpu_needs
from tests.support.rigs import gpu_rig, planned

MIB, GIB = 1 << 20, 1 << 30
SAYS = """#!/bin/sh
case $* in
*--query-gpu=*) printf '00000000:01:00.0, GPU-a, %s\\n00000000:02:00.0, GPU-b, 24000\\n' "$FREE" ;;
*) printf '%b' "$APPS" ;;
esac
exit ${CODE:-0}
"""
FIRST = "pid:[4026531836]"
HERE = str(Path("/proc/self/ns/pid").readlink())
"""The PID namespace that tests run in: taken for the driver's own, whichever it is."""


def said(
    folder: Path,
    asked: dict[str, object],
    *pids: str,
    free: str = "4000",
    apps: str = "",
    code: int = 0,
    first: str = HERE,
) -> str:
    """What the script says of one GPU."""
    smi = folder / "nvidia-smi"
    smi.write_text(SAYS)
    smi.chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}", "FREE": free, "APPS": apps, "CODE": str(code)}
    program = (ROOT / "templates" / "serve" / "room.py").read_text()
    assert FIRST in program
    program = program.replace(FIRST, first)
    ended = subprocess.run(
        [sys.executable, "-I", "-", "gpus", json.dumps([asked]), "\n".join(pids), ""],
        input=program,
        env=path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.returncode == bool(ended.stdout)
    return ended.stdout


def needs(gib: float, at: str = "0") -> dict[str, object]:
    return {"name": "big", "at": at, "need": int(gib * GIB)}


def test_what_is_free_is_enough(tmp_path: Path) -> None:
    assert said(tmp_path, needs(3.9)) == ""
    assert said(tmp_path, needs(20, "GPU-B")) == ""
    assert said(tmp_path, needs(20, "00000000:02:00.0")) == ""


def test_the_memory_of_the_server_that_ends_counts(tmp_path: Path) -> None:
    apps = f"GPU-a, {os.getpid()}, 6000\\nGPU-b, {os.getpid()}, 90000\\n"
    assert said(tmp_path, needs(9), str(os.getpid()), apps=apps) == ""
    assert said(tmp_path, needs(12), str(os.getpid()), apps=apps) == "GPU big has 10.5 GB for it, and it takes 12.9 GB"


def test_the_memory_of_its_children_counts(tmp_path: Path) -> None:
    """As of a group, whose server holds nothing itself."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        apps = f"GPU-a, {child.pid}, 6000\\n"
        assert said(tmp_path, needs(9), str(os.getpid()), apps=apps) == ""
        assert "holds 6.3 GB" in said(tmp_path, needs(9), apps=apps)
        child.communicate()


def test_who_holds_the_rest_is_named(tmp_path: Path) -> None:
    apps = f"GPU-a, {os.getpid()}, 8000\\nGPU-a, 999999999, 300\\n"
    name = Path("/proc/self/comm").read_text().strip()
    assert said(tmp_path, needs(9), apps=apps) == (
        f"GPU big has 4.2 GB for it, and it takes 9.7 GB; {name} (process {os.getpid()}) holds 8.4 GB, "
        "process 999999999 holds 0.3 GB"
    )


@pytest.mark.parametrize(
    ("free", "apps", "code"),
    [("[N/A]", "", 0), ("400", "GPU-a, 7, [N/A]\\n", 0), ("400", "", 9), ("400", "No devices were found\\n", 0)],
)
def test_where_the_driver_cannot_tell_nothing_is_said(tmp_path: Path, free: str, apps: str, code: int) -> None:
    assert said(tmp_path, needs(9), free=free, apps=apps, code=code) == ""


def test_in_a_pid_namespace_nothing_is_said(tmp_path: Path) -> None:
    """What the driver calls processes means nothing there."""
    assert said(tmp_path, needs(9), first="pid:[1]") == ""


@pytest.mark.parametrize("at", ["7", "GPU-z"])
def test_a_gpu_that_is_not_there_is_not_its_business(tmp_path: Path, at: str) -> None:
    assert said(tmp_path, needs(9, at)) == ""


def test_what_an_instance_needs_of_which_gpu() -> None:
    instance = planned(gpu_rig()).instances[0]
    (card,) = instance.server.cards
    holds = tuple(
        Holds(where=where, size=0, weights=5, kv=4, state=0, compute=3, draft=2, cuda=1) for where in (card.name, "RAM")
    )
    known = instance.model_copy(update={"memory": Estimate(source="arithmetic", holds=holds)})
    assert gpu_needs(known) == [GpuNeed(card.name, card.at, 15)]
    doubtful = known.model_copy(update={"memory": Estimate(source="arithmetic", holds=holds, doubts=("perhaps",))})
    assert gpu_needs(doubtful) == gpu_needs(instance.model_copy(update={"memory": None})) == []
