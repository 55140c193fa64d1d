"""The five rigs in full, against golden files: what is planned for each, and every unit and Compose file.

After a wanted change, `REWRITE_GOLDEN=1 .venv/bin/pytest tests/render` writes them anew; read their diff like code.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from llamaherd.checks.context import RigContext
from llamaherd.checks.registry import CHECKS
from llamaherd.engines import DIALECTS, flags_of
from llamaherd.engines.flags import catalogues, check_arguments
from llamaherd.inventory.wsl_files import merge_wslconfig
from llamaherd.inventory.yaml_file import inherited, read_yaml
from llamaherd.memory.facts import rig_facts
from tests.render.texts import GOLDEN
from tests.render.texts import texts as host_texts
from tests.support.examples import EXAMPLES, fleet, locked, planned
from tests.support.golden import assert_golden
from tests.support.ours import show_plan

RIGS = ["budget", "duo", "one", "six", "wsl"]


def test_these_are_all_of_them() -> None:
    assert sorted(fleet().rigs) == RIGS
    assert sorted(path.stem for path in EXAMPLES.glob("*.yaml")) == RIGS


def texts(rig: str) -> dict[str, str]:
    """What is planned for a rig, by the name of the golden file."""
    plan = planned(rig)
    found = {f"rigs/{rig}.txt": show_plan(plan)}
    for instance in plan.instances:
        ending = "service" if instance.backend == "systemd" else "yaml"
        found[f"rigs/{rig}_{instance.name}.{ending}"] = instance.file.text
    if plan.wsl:
        found[f"rigs/{rig}_new.wslconfig"] = merge_wslconfig(None, plan.wsl.settings).text.decode()
        found |= {f"rigs/{rig}_{Path(script.path).name}": script.text for script in plan.wsl.scripts}
    return found


@pytest.mark.parametrize("rig", RIGS)
def test_golden(rig: str) -> None:
    for name in texts(rig):
        assert_golden(GOLDEN, name, {**host_texts(), **all_texts()})
    files = {f"rigs/{file.name}" for file in (GOLDEN / "rigs").iterdir()}
    assert {file for file in files if Path(file).stem.split("_")[0] == rig} == set(texts(rig))


@cache
def all_texts() -> dict[str, str]:
    """Return the texts of all rigs."""
    return {name: text for rig in RIGS for name, text in texts(rig).items()}


@pytest.mark.parametrize("rig", RIGS)
def test_nothing_is_wrong_with_it(rig: str) -> None:
    """No false alarm: neither with what the file says, nor with what the models' headers add to it.

    That ik_llama.cpp lets any web page talk to a server without a key is true of duo.
    """
    document = inherited(read_yaml(EXAMPLES / f"{rig}.yaml"), {}, None)
    declared = fleet().rigs[rig]
    headers = {name: header for name, model in declared.models.items() if (header := locked().header(model))}
    assert set(headers) == set(declared.models)
    subject = RigContext(rig_facts(declared, headers), document, rigs=fleet().rigs, names=RIGS)
    found = [finding.code for each in CHECKS for finding in each(subject)]
    assert found == (["LH078"] if rig == "duo" else [])


@pytest.mark.parametrize("rig", RIGS)
def test_every_server_is_told_what_its_version_understands(rig: str) -> None:
    others = tuple(each for kind in DIALECTS for each in catalogues(kind))
    for instance in planned(rig).instances:
        known = flags_of(fleet().rigs[rig].engines[instance.engine])
        assert known
        problems = check_arguments(known, instance.server.arguments, others)
        # That it listens in the LAN is meant: a key is asked for, from a file.
        assert [problem for problem in problems if problem.rule.code != "LH118"] == []


def test_the_lock_reads_back(tmp_path: Path) -> None:
    from llamaherd import lock

    lock.write_lock(tmp_path / "herd.lock", locked())
    assert lock.read_lock_file(tmp_path / "herd.lock") == locked()
