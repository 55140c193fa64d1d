"""The five rigs in full, against golden files: what is planned for each, and every unit and Compose file.

After a wanted change, `REWRITE_GOLDEN=1 .venv/bin/pytest tests/render` writes them anew; read their diff like code.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from llamaherd.checks.context import RigContext
from llamaherd.checks.registry import CHECKS
from llamaherd.engines import DIALECTS, flags_of
from llamaherd.engines.flags import catalogues, check
from llamaherd.inventory.inheritance import inherited
from llamaherd.inventory.yamlfile import read_yaml
from llamaherd.wsl.merge import merge_wslconfig
from tests.support.examples import EXAMPLES, fleet, locked, planned
from tests.support.ours import show_plan

GOLDEN = Path(__file__).parent / "golden" / "rigs"
RIGS = ["budget", "duo", "one", "six", "wsl"]


def test_these_are_all_of_them() -> None:
    assert sorted(fleet().rigs) == RIGS
    assert sorted(path.stem for path in EXAMPLES.glob("*.yaml")) == RIGS


def texts(rig: str) -> dict[str, str]:
    """What is planned for a rig, by the name of the golden file."""
    plan = planned(rig)
    found = {f"{rig}.txt": show_plan(plan)}
    for instance in plan.instances:
        ending = "service" if instance.backend == "systemd" else "yaml"
        found[f"{rig}_{instance.name}.{ending}"] = instance.file.text
    if plan.wsl:
        found[f"{rig}_new.wslconfig"] = merge_wslconfig(None, plan.wsl.settings).text.decode()
        found |= {f"{rig}_{Path(script.path).name}": script.text for script in plan.wsl.scripts}
    return found


@pytest.mark.parametrize("rig", RIGS)
def test_golden(rig: str) -> None:
    if os.environ.get("REWRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        for name, text in texts(rig).items():
            (GOLDEN / name).write_bytes(text.encode())
    # As bytes: what Windows reads ends its lines in its own way.
    assert texts(rig) == {path.name: path.read_bytes().decode() for path in files(rig)}


def files(rig: str) -> list[Path]:
    return sorted(path for path in GOLDEN.iterdir() if path.stem.split("_")[0] == rig)


@pytest.mark.parametrize("rig", RIGS)
def test_nothing_is_wrong_with_it(rig: str) -> None:
    """No false alarm: neither with what the file says, nor with what the models' headers add to it.

    That ik_llama.cpp lets any web page talk to a server without a key is true of duo.
    """
    document = inherited(read_yaml(EXAMPLES / f"{rig}.yaml"), {}, None)
    declared = fleet().rigs[rig]
    headers = {name: header for name, model in declared.models.items() if (header := locked().header(model))}
    assert set(headers) == set(declared.models)
    subject = RigContext(declared, document, headers, rigs=fleet().rigs, names=RIGS)
    found = [finding.code for each in CHECKS for finding in each(subject)]
    assert found == (["LH078"] if rig == "duo" else [])


@pytest.mark.parametrize("rig", RIGS)
def test_every_server_is_told_what_its_version_understands(rig: str) -> None:
    others = tuple(each for kind in DIALECTS for each in catalogues(kind))
    for instance in planned(rig).instances:
        known = flags_of(fleet().rigs[rig].engines[instance.engine])
        assert known
        problems = check(known, instance.server.arguments, others)
        # That it listens in the LAN is meant: a key is asked for, from a file.
        assert [problem for problem in problems if problem.rule.code != "LH118"] == []


def test_the_lock_reads_back(tmp_path: Path) -> None:
    from llamaherd import lock

    lock.write_lock(tmp_path / "herd.lock", locked())
    assert lock.read_lock_file(tmp_path / "herd.lock") == locked()


@pytest.mark.parametrize("rig", RIGS)
def test_a_script_that_a_host_runs_is_one_that_sh_reads(rig: str) -> None:
    for build in planned(rig).builds:
        subprocess.run(["sh", "-n"], input=build.script, text=True, check=True)
