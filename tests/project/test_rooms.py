"""The rooms of the house: who may import whom, by the table of docs/architecture.md; what is an edge."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.rigs import ROOT

CORE = ROOT / "llamaherd"
MOST = 33
"""Rooms in the first level of the core: as many as one page's table can hold."""
OUTSIDE = {"socket", "ssl", "http", "urllib.request", "subprocess", "time", "random", "secrets", "uuid"}
OUTSIDE_NAMES = {"os.environ", "os.getenv", "datetime.now", "Path.cwd"}
EDGES = (
    *("cli/", "deploy/", "fetcher/", "bounded.py", "gguf/remote.py", "lock/hold.py", "lock/resolve/"),
    *("bench/asking/client.py", "bench/asking/plain.py", "bench/meter/meter.py", "bench/meter/watch.py"),
    *("bench/way.py", "bench/warming.py", "bench/session.py", "bench/conductor.py", "bench/foreign.py"),
    *("bench/arms/host.py", "bench/arms/measure.py", "bench/arms/boot_measure.py"),
    *("host/remote.py", "host/ssh.py", "host/pipes.py", "role/dial.py"),
    *("onhost/system.py", "onhost/lock_file.py", "onhost/processes.py", "onhost/docker_api.py"),
    *("onhost/gauges.py", "onhost/gpu_sources.py", "onhost/in_flight.py", "onhost/meter.py", "onhost/nvml.py"),
    *("inventory/authority.py", "inventory/keys.py", "inventory/server_keys.py", "pipeline/load.py"),
    "gateway/users.py",
)
"""Where a network, a clock, the environment or another program may be asked. All else is decided without them."""
HEAVY = (
    "pyinfra",
    "pyinfra_cli",
    "cryptography",
    "docker",
    "huggingface_hub",
    "paramiko",
    "gevent",
    "httpx2",
    "httpx",
    "rich",
    "gguf",
    "optuna",
)
LOADS_HEAVY = (
    "deploy/",
    "bench/comparing/show.py",
    "bench/show_outcome.py",
    "bounded.py",
    "inventory/certificates.py",
    "pipeline/preflight_show.py",
    "report/show.py",
    "store/show.py",
    "tune/model.py",
    "tune/ped_anova.py",
    "tune/show.py",
    "fetcher/",
    "cli/__main__.py",
)
"""What may load such a library as it is imported: a command loads it when it needs it."""


def rooms() -> list[str]:
    """The rooms by the page, from the top down."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return [name.rstrip("/") for name in re.findall(r"^\| `llamaherd/([\w.]+/?)` \|", page, re.MULTILINE)]


def files() -> list[Path]:
    """All modules of the core."""
    return sorted(file for file in CORE.rglob("*.py") if file != CORE / "__init__.py")


@cache
def imports(file: Path) -> frozenset[str]:
    """The full names of what a module imports, at its head or later."""

    def named() -> Iterator[str]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    return frozenset(named())


def attributes(file: Path) -> set[str]:
    """What a module names with a dot in it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def place(file: Path) -> str:
    """A module by its path in the core."""
    return file.relative_to(CORE).as_posix()


def room_of(name: str) -> str | None:
    """The room that a full name of an import belongs to, if it is of the core."""
    parts = name.split(".")
    if parts[0] != "llamaherd" or len(parts) == 1:
        return None
    if (CORE / parts[1]).is_dir():
        return parts[1]
    return f"{parts[1]}.py" if (CORE / f"{parts[1]}.py").is_file() else None


def test_the_page_lists_the_rooms_that_there_are() -> None:
    there = {path.name for path in CORE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(rooms()) == sorted(there - {"__init__.py"})
    assert len(rooms()) <= MOST


@pytest.mark.parametrize("room", rooms())
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    below = {room, *rooms()[rooms().index(room) + 1 :]}
    inside = [file for file in files() if file.relative_to(CORE).parts[0] == room]
    assert inside
    upwards = {
        f"{file.relative_to(CORE)} imports {name}"
        for file in inside
        for name in imports(file)
        if (target := room_of(name)) and target not in below
    }
    assert sorted(upwards) == []


def test_the_core_knows_no_role_and_no_box() -> None:
    """Roles are handed to it as values: one module of its own says which there are."""
    outside = {"roles", "deploy", "inventory", "box", "tests", "benchmarks"}
    knowing = [place(file) for file in files() if any(name.split(".")[0] in outside for name in imports(file))]
    assert knowing == ["pipeline/own_roles.py"]


@pytest.mark.parametrize("role", sorted(path.parent.name for path in (ROOT / "roles").glob("*/__init__.py")))
def test_a_role_knows_no_other_ones_inside(role: str) -> None:
    names = {name for file in (ROOT / "roles" / role).rglob("*.py") for name in imports(file)}
    assert {name.split(".")[1] for name in names if name.startswith("roles.")} <= {role}
    assert not {name for name in names if name.startswith(("pyinfra", "llamaherd.deploy", "llamaherd.pipeline"))}


@pytest.mark.parametrize("folder", ["templates", "tests/roles"])
def test_one_thing_has_one_name_in_every_layer(folder: str) -> None:
    roles = {path.parent.name for path in (ROOT / "roles").glob("*/__init__.py")}
    there = {file.relative_to(ROOT / folder).parts[0] for file in (ROOT / folder).glob("*/*") if file.suffix != ".pyc"}
    rooms_that_ask = {"bench", "deploy", "history", "host", "memory", "prune", "report", "scaffold", "status", "store"}
    # A role that writes no text on a host has no templates.
    assert folder == "templates" or roles <= there
    assert there - roles <= rooms_that_ask


def test_the_page_of_a_role_has_its_name() -> None:
    roles = {path.parent.name for path in (ROOT / "roles").glob("*/__init__.py")}
    told_with_the_inventory = {"base", "engines"}
    assert roles - told_with_the_inventory <= {page.stem for page in (ROOT / "docs").glob("*.md")}


def test_only_the_edge_knows_pyinfra() -> None:
    knowing = {file for file in files() if any(name.split(".")[0].startswith("pyinfra") for name in imports(file))}
    assert {place(file).split("/")[0] for file in knowing} == {"deploy"}


def test_what_is_no_edge_asks_for_no_network_clock_or_environment() -> None:
    found = {
        place(file): asked
        for file in files()
        if not place(file).startswith(EDGES) and (asked := imports(file) & OUTSIDE | attributes(file) & OUTSIDE_NAMES)
    }
    assert found == {}


def test_the_core_loads_no_heavy_library() -> None:
    light = [place(file) for file in files() if not place(file).startswith(LOADS_HEAVY)]
    modules = [place.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for place in light]
    script = f"""
import importlib, sys
for module in {modules}:
    importlib.import_module(f"llamaherd.{{module}}")
    if heavy := sorted(set(sys.modules) & set({HEAVY})):
        raise SystemExit(f"{{module}} loads {{heavy}}")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_type_checker_reads_the_programs_that_hosts_run() -> None:
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    programs = {str(file.relative_to(ROOT)) for file in (ROOT / "templates").rglob("*.py")}
    # That one has no types, and lies on hosts: with them, each gateway would see a change for no other reason.
    assert programs - set(files) == {"templates/gateway/gateway-talk.py"}
