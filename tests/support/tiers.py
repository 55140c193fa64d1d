"""The tiers of tests, read from the source: a test that can start a process, open a socket or wait is no pure test.

A test belongs to the process tier where its function, a fixture that it uses, or anything of tests/, box/ or
benchmarks/ that one of them refers to, names a module of `STARTS`. Everything else is pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("tests", "box", "benchmarks")
"""The packages whose definitions are followed."""
STARTS = frozenset(
    {
        *("subprocess", "multiprocessing", "concurrent", "threading", "pty", "signal"),
        *("socket", "socketserver", "http", "asyncio", "select", "selectors", "ssl"),
        "time",
    }
)
"""Modules of the standard library that start, connect or wait."""
EVENTS = frozenset(
    {
        *("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "pty.spawn"),
        *("socket.bind", "socket.connect", "socket.sendto", "socket.getaddrinfo", "time.sleep"),
    }
)
"""What Python's audit hooks report of it."""


@dataclass(frozen=True)
class Module:
    """A file's definitions at its top level, and where the names it imports come from."""

    definitions: dict[str, tuple[ast.stmt, ...]]
    imported: dict[str, tuple[str, str]]  # the name here -> the module, the name there ("" for the module itself)


_STARTS: dict[tuple[Path, str], bool] = {}


def starts(file: Path, name: str) -> bool:
    """Return whether a definition of a file can start a process, open a socket or wait."""
    if (file, name) in _STARTS:
        return _STARTS[file, name]
    seen: set[tuple[Path, str]] = set()
    left = [(file, name)]
    found = False
    while left and not found:
        place = left.pop()
        if place in seen or _STARTS.get(place) is False:
            continue
        seen.add(place)
        found = _STARTS.get(place, False)
        for module, its_name in _named(*place):
            if module.split(".")[0] in STARTS:
                found = True
            elif (target := _file(module)) is not None:
                left += [(target, its_name)] if its_name else [(target, each) for each in _module(target).definitions]
    if not found:
        _STARTS.update(dict.fromkeys(seen, False))
    _STARTS[file, name] = found
    return found


@cache
def _named(file: Path, name: str) -> frozenset[tuple[str, str]]:
    """Return what a definition refers to: each with its module and its name there."""
    return frozenset(_references(file, name))


def _references(file: Path, name: str) -> Iterator[tuple[str, str]]:
    module = _module(file)
    if name in module.imported:  # handed on
        yield module.imported[name]
    for statement in module.definitions.get(name, ()):
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from _of(node.module, [alias.name for alias in node.names])
            elif isinstance(node, ast.Name) and node.id in module.imported:
                yield module.imported[node.id]
            elif isinstance(node, ast.Name) and node.id in module.definitions and node.id != name:
                yield _dotted(file), node.id


@cache
def _module(file: Path) -> Module:
    definitions: dict[str, tuple[ast.stmt, ...]] = {}
    imported: dict[str, tuple[str, str]] = {}
    for statement in _top(ast.parse(file.read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.Import):
            imported |= {alias.asname or alias.name.split(".")[0]: (alias.name, "") for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            places = _of(statement.module, [alias.name for alias in statement.names])
            imported |= {
                alias.asname or alias.name: place for alias, place in zip(statement.names, places, strict=True)
            }
        else:
            for name in _bound(statement):
                definitions[name] = (*definitions.get(name, ()), statement)
    return Module(definitions, imported)


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a file, those under an `if` as well."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _top([*statement.body, *statement.orelse])
        else:
            yield statement


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement gives a value."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return [node.id for node in stored]


def _of(module: str, names: list[str]) -> list[tuple[str, str]]:
    """The places of names that are imported from a module: each can be a module itself."""
    return [(f"{module}.{name}", "") if _file(f"{module}.{name}") else (module, name) for name in names]


@cache
def _file(module: str) -> Path | None:
    """The file of one of our modules."""
    if module.split(".")[0] not in OURS:
        return None
    path = ROOT.joinpath(*module.split("."))
    found = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in found if file.is_file()), None)


@cache
def _dotted(file: Path) -> str:
    """A file's name as a module."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
