"""Operations and roles are such as pyinfra wants them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from pyinfra.api.arguments import all_global_arguments

from llamaherd.deploy import operations
from tests.support.rigs import ROOT

RESERVED = {name for name, _ in all_global_arguments()} | {"name"}


def calls_of_operations() -> list[tuple[Path, ast.Call]]:
    return [
        (file, node)
        for file in [ROOT / "deploy.py", ROOT / "llamaherd/deploy/operations.py"]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in OPERATIONS
    ]


OPERATIONS = {name for name, value in vars(operations).items() if hasattr(value, "is_idempotent")}


def test_operations_are_found() -> None:
    assert {"carry_out", "check_host", "hold_lock", "note_own", "record_run", "refuse"} == OPERATIONS
    assert len(calls_of_operations()) == 6


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
    for file in sorted((ROOT / "roles").rglob("*.py")):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        assert not [node for node in body if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)]


def test_the_edge_uses_pyinfra_as_it_is() -> None:
    """No attribute of pyinfra, gevent or paramiko is set, no private name is imported, and no text is compiled."""
    theirs = ("pyinfra", "pyinfra_cli", "gevent", "paramiko")
    for file in sorted((ROOT / "llamaherd" / "deploy").glob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        imported = [
            alias
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0] in theirs
        ]
        names = {alias.asname or alias.name.split(".")[0] for alias in imported}
        assert not [alias.name for alias in imported if alias.name.startswith("_")], file
        targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
        assert not [target for target in targets if ast.unparse(target).split(".")[0] in names], file
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        assert not called & {"exec", "compile", "setattr", "vars"}, file
        assert "sys.modules" not in {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}, file
