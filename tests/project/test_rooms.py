"""The order of the packages: each imports only those after it; which modules may touch a network or a clock."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.rigs import ROOT

CORE = ROOT / "llamaherd"
ORDER = (
    *("cli", "fleet", "measure", "recipes", "scaffold", "deploy", "pipeline", "store", "role", "host", "plan", "lock"),
    *("checks", "memory", "engines", "gguf", "inventory", "reference", "bounded.py", "diagnostics", "render.py"),
    *("text", "onhost", "layout.py", "resources.py", "installation.py"),
)
"""The packages and modules of llamaherd/: an import points to the right, never to the left."""
OUTSIDE = {"socket", "ssl", "http", "urllib.request", "subprocess", "time", "random", "secrets", "uuid"}
OUTSIDE_NAMES = {"os.environ", "os.getenv", "datetime.now", "Path.cwd"}
EDGES = (
    *("cli/", "deploy/", "onhost/fetch/", "bounded.py", "gguf/shards.py", "role/dial.py"),
    *("pipeline/discovery.py", "pipeline/load.py"),
    *("lock/file.py", "lock/git_refs.py", "lock/github.py", "lock/hub.py", "lock/local_files.py", "lock/registry.py"),
    "lock/resolver.py",
    *("measure/bench/measurement.py", "measure/bench/job.py", "measure/bench/session.py"),
    *("measure/client/http_client.py", "measure/meter/meter.py"),
    *("measure/trials/gate.py", "measure/trials/trial.py"),
    *(
        "host/remote.py",
        "host/ssh.py",
        "host/tunnel.py",
        "inventory/api_keys.py",
        "inventory/authority.py",
        "fleet/chat.py",
        "fleet/users.py",
        "fleet/gateway.py",
    ),
    *("onhost/docker_api.py", "onhost/gauges.py", "onhost/gpu_sources.py", "onhost/meter.py", "onhost/posix.py"),
    *("onhost/system.py", "recipes/bash.py"),
)
"""The modules that may use a network, a clock, the environment or another program. All other modules decide."""
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
    *("deploy/", "onhost/fetch/", "bounded.py", "cli/", "inventory/certificates.py"),
    "measure/results/comparison_table.py",
    *("measure/tune/optuna_model.py", "measure/tune/show.py", "store/show.py", "text/tables.py"),
)
"""The modules that may load such a library when they are imported: a command imports them when it needs them."""


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


def test_each_package_has_its_place_in_the_order() -> None:
    there = {path.name for path in CORE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(ORDER) == there - {"__init__.py"}


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_what_comes_after_it(package: str) -> None:
    after = {package, *ORDER[ORDER.index(package) + 1 :]}
    inside = [file for file in files() if file.relative_to(CORE).parts[0] == package]
    assert inside
    upwards = {
        f"{file.relative_to(CORE)} imports {name}"
        for file in inside
        for name in imports(file)
        if (target := room_of(name)) and target not in after
    }
    assert sorted(upwards) == []


def test_only_commands_and_deploy_py_know_the_houses() -> None:
    """Measuring, draining and recipes are handed to the core as values."""
    houses = {"cli", "fleet", "measure", "recipes"}
    core = [file for file in files() if place(file).split("/")[0] not in houses]
    whole = [*core, *sorted((ROOT / "roles").rglob("*.py")), ROOT / "inventory.py", ROOT / "deploy.py"]
    knowing = {
        file.relative_to(ROOT).as_posix() for file in whole if houses & {room_of(name) for name in imports(file)}
    }
    assert knowing - {"roles/monitoring/__init__.py"} == {"deploy.py"}


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
