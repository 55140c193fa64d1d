"""What verification says of the files that we bring along and that somebody removed, changed or opened."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.onhost.system import Host
from llamaherd.pipeline.verify import verify_input
from llamaherd.plan import Plan
from roles import ROLES
from tests.support.ours import brought_checks, brought_files, probed
from tests.support.rigs import cpu_rig, gpu_rig, planned
from tests.support.stores import needs_root

CPU, GPU = planned(cpu_rig()), planned(gpu_rig())
FETCHER = "/opt/llamaherd/libexec/fetcher/llamaherd/onhost/fetch"


def found(plan: Plan, stats: dict[str, str], sums: dict[str, str]) -> tuple[bool, str]:
    """The check of a host where files have this owner and mode, and these sums."""
    (check,) = brought_checks(
        plan,
        {
            ("shipped", ""): "\n".join(f"{stat}\t{path}" for path, stat in stats.items()),
            ("shipped sums", ""): "\n".join(f"{sha256}  {path}" for path, sha256 in sums.items()),
        },
    )
    return check.ok, check.detail


def as_planned(plan: Plan) -> tuple[dict[str, str], dict[str, str]]:
    """What a host says where all lies as planned."""
    files = brought_files(plan)
    stats = {path: f"{int(file.mode, 8):o}\t{file.owner}" for path, file in files.items()}
    return stats, {path: hashlib.sha256(file.text.encode()).hexdigest() for path, file in files.items()}


@pytest.mark.parametrize("plan", [CPU, GPU], ids=["CPU", "cards"])
def test_each_file_that_is_not_as_we_brought_it_is_named(plan: Plan) -> None:
    stats, sums = as_planned(plan)
    assert found(plan, stats, sums)[0]
    for path in brought_files(plan):
        others = {each: stat for each, stat in stats.items() if each != path}
        assert found(plan, others, sums) == (False, f"{path} is not there: `herd up` mends that")
        assert found(plan, stats, {**sums, path: "0" * 64}) == (
            False,
            f"{path} differs from the plan: `herd up` mends that",
        )
        for stat in ("777\troot", "755\ttom", "600\troot"):
            ok, detail = found(plan, {**stats, path: stat}, sums)
            assert (ok, detail.startswith(f"{path} has mode {stat[:3]}")) == (False, True)


def test_gates_and_what_holds_cards_are_among_them() -> None:
    assert {Path(path).name for path in brought_files(CPU)} >= {"wait-healthy", "started", "fetch", "download.py"}
    assert {Path(path).name for path in brought_files(GPU)} >= {"gpu-gate", "gpu-check"}


def test_a_module_too_many_could_be_imported() -> None:
    stats, sums = as_planned(CPU)
    ok, detail = found(CPU, {**stats, f"{FETCHER}/zlib.py": "644\troot"}, sums)
    assert (ok, f"{FETCHER}/zlib.py is not in the plan" in detail) == (False, True)


def test_where_all_is_gone_some_are_named_and_the_others_counted() -> None:
    ok, detail = found(CPU, {}, {})
    assert not ok
    assert detail.count(" is not there") == 3
    assert f" and {len(brought_files(CPU)) - 3} more" in detail


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_the_question_finds_what_lies_there(tmp_path: Path) -> None:
    """The probes themselves, on real files: those that are put where they look, and one that another wrote."""
    probes = [
        replace(each, argv=tuple(word.replace("/opt/llamaherd", f"{tmp_path}/opt/llamaherd") for word in each.argv))
        for each in verify_input(CPU, ROLES).probes
        if each.what.startswith("shipped")
    ]
    for path, file in brought_files(CPU).items():
        place = tmp_path / path.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file.text)
        place.chmod(int(file.mode, 8))

    def judged() -> tuple[bool, str]:
        found = {name: text.replace(str(tmp_path), "") for name, text in probed(probes, Host(print, print)).items()}
        (check,) = brought_checks(CPU, found)
        return check.ok, check.detail

    assert judged()[0], judged()[1]
    gate = tmp_path / "opt/llamaherd/libexec/wait-healthy"
    gate.rename(tmp_path / "moved")
    gate.symlink_to(tmp_path / "moved")
    assert "wait-healthy" in judged()[1]
    gate.unlink()
    gate.write_text("#!/bin/sh\n")
    gate.chmod(0o755)
    assert judged() == (False, "/opt/llamaherd/libexec/wait-healthy differs from the plan: `herd up` mends that")
