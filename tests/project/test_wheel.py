"""The wheel works without a checkout: it holds all that is needed, asks for no more, and says the same."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from llamaherd.cli.herd import main
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock
from llamaherd.lock.file import write_lock
from llamaherd.measure.client.requests import suite
from tests.support.envelope import envelope, the_rig
from tests.support.examples import EXAMPLES, fleet, locked, planned
from tests.support.ours import plan
from tests.support.own_role import SHOWN, write_example
from tests.support.rigs import ROOT, cpu_rig
from tests.support.sample import drawn
from tests.support.wheel import Installed, install

OURS = {"llamaherd", "roles"}
OF_OTHERS = {"gevent": "pyinfra", "pydantic-core": "pydantic"}
"""Packages that belong to others of ours: these bring the version that goes with them."""
BROUGHT = ("templates", "compose", "docs", "inventory/examples", "deploy.py", "inventory.py")
"""What is no module, and lies in the wheel as it does here."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this tree."""
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example rigs, locked, where no checkout is near."""
    folder = tmp_path_factory.mktemp("elsewhere") / "fleet"
    shutil.copytree(EXAMPLES, folder)
    write_lock(folder / "herd.lock", locked())
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, or the one that it is, by its path from the checkout."""
    every = [folder] if folder.is_file() else [each for each in folder.rglob("*") if each.is_file()]
    return {str(each.relative_to(ROOT)): each.read_bytes() for each in every if "__pycache__" not in each.parts}


def test_it_is_this_code_and_not_the_checkout(installed: Installed, tmp_path: Path) -> None:
    script = "import llamaherd, roles, llamaherd.resources as r; print(llamaherd.__file__, roles.__file__, r.ROOT)"
    said = installed.run([str(installed.python), "-c", script], tmp_path)
    assert said.returncode == 0, said.stderr
    assert all(Path(each).is_relative_to(installed.home) for each in said.stdout.split())
    gone = installed.run([str(installed.python), "-c", "import box"], tmp_path)
    assert "No module named 'box'" in gone.stderr


def test_what_lands_on_hosts_is_in_it_byte_for_byte(installed: Installed) -> None:
    here = {path: data for name in BROUGHT for path, data in files(ROOT / name).items()}
    assert len(here) > 50
    with zipfile.ZipFile(installed.wheel) as wheel:
        prefix = "llamaherd/_data/"
        there = {name.removeprefix(prefix): wheel.read(name) for name in wheel.namelist() if name.startswith(prefix)}
        tops = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
        beside = {name.partition(".data/data/")[2]: name for name in wheel.namelist() if ".data/data/" in name}
        share = {path: wheel.read(name) for path, name in beside.items()}
    assert there == here
    assert {top for top in tops if not top.endswith(".data")} == OURS
    assert share == files(ROOT / "share")


def test_it_asks_for_what_it_imports_and_for_nothing_else(installed: Installed) -> None:
    imported: set[str] = set()
    with zipfile.ZipFile(installed.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        asked = [
            Requirement(each) for each in re.findall(r"^Requires-Dist: (.+)$", wheel.read(metadata).decode(), re.M)
        ]
        for name in wheel.namelist():
            if name.endswith(".py"):
                imported |= imports(wheel.read(name).decode())
    of = packages_distributions()
    used = {canonicalize_name(of[name][0]) for name in imported - OURS - sys.stdlib_module_names}
    always = {canonicalize_name(each.name) for each in asked if not each.marker}
    extras = {
        each.name
        for each in asked
        if each.marker and any(each.marker.evaluate({"extra": extra}) for extra in ("card", "tune"))
    }
    assert used - set(OF_OTHERS) == always | extras
    for part, whole in OF_OTHERS.items():
        assert part in {canonicalize_name(Requirement(each).name) for each in requires(whole) or ()}
    assert {"docker", "gguf"} <= {each.name for each in asked if each.marker and each.marker.evaluate({"extra": "box"})}


def imports(source: str) -> set[str]:
    """The first names of all modules that a source imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


COMMANDS = [(), *((name,) for name in sorted(main.commands)), ("models", "prune")]


@pytest.mark.parametrize("command", drawn(COMMANDS), ids=str)
def test_every_command_has_its_help(command: tuple[str, ...], installed: Installed, tmp_path: Path) -> None:
    said = installed.run(installed.herd(*command, "--help"), tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(" ".join(["Usage: herd", *command]))


def test_plans_are_those_of_the_checkout(installed: Installed, examples: Path) -> None:
    said = installed.run(installed.herd("show", "-i", str(examples), "--json"), examples.parent)
    assert said.returncode == 0, said.stderr
    assert envelope(said.stdout)["rigs"] == [planned(name).model_dump(mode="json") for name in fleet().rigs]


def test_the_image_of_a_build_is_that_of_the_checkout(installed: Installed, tmp_path: Path) -> None:
    rig = cpu_rig()
    (tmp_path / "box.yaml").write_text(json.dumps(rig))
    here = plan(Rig.model_validate(rig, context={"folder": tmp_path}), Lock())
    assert here.images
    said = installed.run(installed.herd("show", "-i", str(tmp_path), "--json"), tmp_path)
    assert said.returncode == 0, said.stderr
    assert the_rig(said.stdout)["images"] == [each.model_dump(mode="json") for each in here.images]


def test_a_role_of_the_fleets_own_takes_part(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(json.dumps(cpu_rig()))
    write_example(tmp_path)
    said = installed.run(installed.herd("show", "-i", str(tmp_path), "-v"), tmp_path)
    assert said.returncode == 0, said.stderr
    assert SHOWN in said.stdout


def test_a_fleet_of_its_own(installed: Installed, examples: Path, tmp_path: Path) -> None:
    """From nothing: the folder, what is wrong with it, what fits, and pyinfra's view of it."""
    made = installed.run(installed.herd("init", "fleet"), tmp_path)
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "fleet"
    checked = installed.run(installed.herd("check", "-i", "fleet"), tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "1 rig, 0 findings\n")
    again = installed.run(installed.herd("init", "fleet"), tmp_path)
    assert set(re.findall(r"^\w+", again.stdout, re.M)) == {"unchanged"}
    model = next(name for name, each in fleet().rigs["duo"].models.items() if each.hf)
    fits = installed.run(installed.herd("fit", "-i", str(examples), model, "--ram", "2000G"), tmp_path)
    assert (fits.returncode, "It fits" in fits.stdout) == (0, True), fits.stderr
    for each in ("herd.lock", "duo.yaml"):
        shutil.copy(examples / each, folder)
    (folder / "attic.yaml").unlink()
    seen = installed.run(installed.pyinfra("inventory.py", "debug-inventory"), folder)
    assert (seen.returncode, "[duo]" in seen.stdout + seen.stderr) == (0, True), seen.stderr


def test_examples_come_along(installed: Installed, tmp_path: Path) -> None:
    made = installed.run(installed.herd("init", "fleet", "--example", "household"), tmp_path)
    assert made.returncode == 0, made.stderr
    assert {"attic.yaml", "porch.yaml", "fleet.yaml"} <= {file.name for file in (tmp_path / "fleet").iterdir()}
    checked = installed.run(installed.herd("check"), tmp_path / "fleet")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prompts_come_along(installed: Installed, tmp_path: Path) -> None:
    """The same suite here and there, or results would not compare; and with it its licence."""
    script = "from llamaherd.measure.client.requests import suite; print(suite().sha256)"
    said = installed.run([str(installed.python), "-c", script], tmp_path)
    assert (said.returncode, said.stdout.strip()) == (0, suite().sha256), said.stderr
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert {"llamaherd/measure/client/prompts/LICENSE"} <= set(wheel.namelist())


def test_pages_come_along(installed: Installed, tmp_path: Path) -> None:
    """What a finding points at is there for who has no checkout."""
    pages = {"LH031": "findings/LH031.md", "lh020": "findings/LH020.md", "docs/inventory.md": "inventory.md"}
    for word, page in pages.items():
        said = installed.run(installed.herd("explain", word), tmp_path)
        assert (said.returncode, said.stdout) == (0, (ROOT / "docs" / page).read_text(encoding="utf-8"))
    both = installed.run(installed.herd("explain", "LH031", "fleet"), tmp_path)
    assert both.stdout.startswith("# LH031\n")
    assert "\n# A fleet of your own\n" in both.stdout
    none = installed.run(installed.herd("explain", "LH999"), tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
    assert "there is no page `LH999`" in none.stderr
    outside = installed.run(installed.herd("explain", "../deploy"), tmp_path)
    assert outside.returncode == 2


def test_what_is_said_names_no_page_by_its_path() -> None:
    """A path of the checkout leads nowhere for most: `herd explain` finds the page for all."""
    files = sorted((ROOT / "llamaherd").rglob("*.py"))
    every = [(file, line, text) for file in files for line, text in strings(file)]
    assert len(every) > 1000
    assert [each for each in every if re.search(r"(^|[ `(])docs/\w+(/|\.md)", each[2])] == []


def strings(file: Path) -> list[tuple[int, str]]:
    """All texts of a module that are no docstrings, and their lines."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    aside = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in aside
    ]
