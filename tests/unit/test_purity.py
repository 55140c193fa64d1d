"""What the layers promise: the core loads none of its edges, and operations are such as pyinfra wants them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from pyinfra.api.arguments import all_global_arguments

from llamaherd import operations
from llamaherd.engines import DIALECTS
from tests.support.rigs import ROOT

PURE = [
    "findings",
    "yamlfile",
    "units",
    "fleet",
    "inventory",
    "lock",
    "engines",
    "render",
    "plan",
    "observe",
    "keys",
    "planning",
    "checks.every",
    "memory",
    "sizing",
    "pinned",
    "gitrefs",
    "registry",
    "locking",
    "plan_instance",
    "plan_power",
    "plan_wsl",
    "plan_repositories",
    "plan_driver",
    "drivers",
    "plan_toolkit",
    "plan_runtime",
    "looks.machine",
    "looks.driver",
    "looks.docker",
    "preflight",
    "nvidia_smi",
    "verify_power",
    "verify_cards",
    "devices",
    "backends",
    "planned",
    "verify_driver",
    "verify_machine",
    "inheritance",
    "flags",
    "recipes",
    *(f"store.{name}" for name in ("seen", "holdings", "judge")),
    *(f"gguf.{name}" for name in ("header", "codes", "parse", "join")),
    *(f"converge.{file.stem}" for file in sorted((ROOT / "llamaherd" / "converge").glob("[a-z]*.py"))),
]
EDGES = ("pyinfra", "pyinfra_cli", "docker", "huggingface_hub", "paramiko", "gevent", "httpx2", "httpx", "rich", "gguf")
RESERVED = {name for name, _ in all_global_arguments()} | {"name"}


def test_the_core_loads_none_of_its_edges() -> None:
    script = f"""
import importlib, sys
for module in {PURE}:
    importlib.import_module(f"llamaherd.{{module}}")
    print(module, *sorted(set(sys.modules) & set({EDGES})))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == PURE


@pytest.mark.parametrize(
    "module",
    [
        *("plan", "plan_instance", "pinned", "sizing", "devices", "observe", "render", "fleet", "engines", "converge"),
        *(
            "backends",
            "planned",
            "checks",
            "memory",
            "flags",
            "gguf/header",
            "gguf/parse",
            "gguf/join",
            "store/seen",
            "store/judge",
        ),
        *("wsl", "plan_wsl", "plan_repositories", "plan_driver", "plan_toolkit", "plan_runtime", "drivers", "looks"),
        "preflight",
    ],
)
def test_what_is_pure_asks_for_no_network_clock_or_environment(module: str) -> None:
    path = ROOT / "llamaherd" / module
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported & {"time", "socket", "random", "subprocess", "urllib.request", "secrets", "uuid"} == set()
        named = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert named & {"os.environ", "os.getenv", "datetime.now", "Path.cwd"} == set()


KNOW_ENGINES = {"engines", "flags", "fleet", "recipes", "lock", "box"}
"""Folders that name engines: their own, and those of what people write and what was written down."""


def test_no_engine_is_known_by_its_name() -> None:
    """What an engine does is asked of it: `llamaherd.engines`. A new one then costs a module and its catalogue."""
    found = []
    for file in [*(ROOT / "llamaherd").rglob("*.py"), *(ROOT / "roles").rglob("*.py")]:
        if KNOW_ENGINES & set(file.relative_to(ROOT).parts):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        words = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found += [f"{file.relative_to(ROOT)}: {word}" for word in words if word in DIALECTS]
    assert found == []


def test_no_template_asks_which_engine_it_is() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in (ROOT / "templates").rglob("*.j2")}
    assert len(texts) > 50
    assert [str(file) for file, text in texts.items() if any(f'"{kind}"' in text for kind in DIALECTS)] == []


def calls_of_operations() -> list[tuple[Path, ast.Call]]:
    return [
        (file, node)
        for file in [ROOT / "deploy.py", *sorted((ROOT / "roles").glob("*.py"))]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in OPERATIONS
    ]


OPERATIONS = {name for name, value in vars(operations).items() if hasattr(value, "is_idempotent")}


def test_operations_are_found() -> None:
    assert {"converge", "preflight"} <= OPERATIONS
    assert len(calls_of_operations()) >= 8


def test_every_operation_has_a_name_that_people_read() -> None:
    for file, call in calls_of_operations():
        keywords = {keyword.arg for keyword in call.keywords}
        assert "name" in keywords, f"{file.name}:{call.lineno} calls {ast.unparse(call.func)} without name="


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_no_operation_takes_what_pyinfra_takes(operation: str) -> None:
    inner = getattr(operations, operation)._inner
    assert RESERVED & set(inspect.signature(inner).parameters) == set()


def test_roles_only_act_when_they_are_called() -> None:
    """A module is imported once for all hosts: what it did at import would be done to one of them."""
    for file in sorted((ROOT / "roles").glob("*.py")):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        assert not [node for node in body if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)]
