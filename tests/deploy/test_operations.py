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
        for file in [ROOT / "deploy.py", ROOT / "llamaherd/deploy/roles.py"]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"operations.{name}" for name in OPERATIONS}
    ]


OPERATIONS = {name for name, value in vars(operations).items() if hasattr(value, "is_idempotent")}


def test_operations_are_found() -> None:
    assert {"carry_out", "preflight", "refuse", "settle"} == OPERATIONS
    assert len(calls_of_operations()) == 4


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
