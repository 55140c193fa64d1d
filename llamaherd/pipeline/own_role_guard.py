"""A fleet's own role, guarded: whatever its functions raise, or give that they must not, is a finding with its line."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import InventoryError, Place, UserError
from llamaherd.inventory.keys import UnreadableKeyError
from llamaherd.lock.apply import NotLockedError
from llamaherd.pipeline.own_role_rules import OWN_ROLE
from llamaherd.role.changes import Change, DeferredScript
from llamaherd.role.role import Role, Task

Value = TypeVar("Value", Role, Task, DeferredScript)
Function = Callable[..., Any]

EXACTLY = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)
"""Nothing is taken for something else, and values that are made already are looked into."""

MEANT = (InventoryError, UserError, UnreadableKeyError, NotLockedError)
"""What a role raises to say what is wrong, in a sentence of its own."""

LONGEST = 200
"""Characters of what an error says that are shown."""


def guarded(role: Role, file: Path) -> Role:
    """The role of this file, with every function of it guarded. Raises InventoryError where a field is none."""
    if wrong := _wrong(Role, role):
        raise InventoryError([OWN_ROLE.at(Place(file), f"role `{role.name}` is none: {wrong}", "correct it there")])
    return _Guard(role.name, file).over(role, "")


def place_of(error: BaseException, file: Path) -> Place:
    """The line of the role's own that an error came from."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Place(Path(error.filename), error.lineno, error.offset or 1)
    own = [place for place in _steps(error) if place.file.is_relative_to(file.resolve().parent)]
    return own[-1] if own else Place(file)


def as_raised(error: BaseException) -> str:
    """An error by its kind, and what it says."""
    return f"{type(error).__name__}: {str(error)[:LONGEST]}" if str(error) else type(error).__name__


class Gives(NamedTuple):
    """What a function gives: a type, or a tuple of many of one."""

    kind: Any
    many: bool


class _Guard:
    """What stands around the functions of one role."""

    def __init__(self, role: str, file: Path) -> None:
        self.role = role
        self.file = file

    def over(self, value: Value, of: str) -> Value:
        """The same value, each function of which gives what it says that it gives, or raises InventoryError."""
        guards: dict[str, Any] = {
            name: self._around(function, gives, called=of + name)
            for name, gives in _gives(type(value)).items()
            if (function := getattr(value, name))
        }
        return replace(value, **guards)

    def _around(self, function: Function, gives: Gives, called: str) -> Function:
        kind, many = gives

        def call(*arguments: Any) -> Any:
            try:
                given = function(*arguments)
                if many and isinstance(given, collections.abc.Iterable) and not isinstance(given, str):
                    given = tuple(given)
            except MEANT:
                raise
            except (Exception, SystemExit) as error:
                if called == "parse" and isinstance(error, ValueError):
                    raise  # says that the answer is none that its script can have printed
                raise self._error(called, place_of(error, self.file), f"ends in {as_raised(error)}") from None
            if wrong := _wrong(kind, given):
                raise self._error(called, _head(function, self.file), f"gives what it must not: {wrong}")
            return tuple(self._inside(each, called) for each in given) if many else given

        return call

    def _inside(self, given: Any, called: str) -> Any:
        """Functions are in what functions give, too."""
        if isinstance(given, Task):
            return self.over(given, f"{called}: ")
        if isinstance(given, Change) and isinstance(given.how, DeferredScript):
            return replace(given, how=self.over(given.how, f"{called}: "))
        return given

    def _error(self, called: str, place: Place, what: str) -> InventoryError:
        message = f"`{called}` of role `{self.role}` {what}"
        return InventoryError([OWN_ROLE.at(place, message, "correct it there")])


def _gives(kind: Any) -> dict[str, Gives]:
    """What each function of such a value gives."""
    found: dict[str, Gives] = {}
    for name, hint in get_type_hints(kind).items():
        for each in (hint, *get_args(hint)):
            if get_origin(each) is collections.abc.Callable:
                gives = get_args(each)[-1]
                many = get_origin(gives) in (collections.abc.Iterable, collections.abc.Sequence)
                found[name] = Gives(GenericAlias(tuple, (*get_args(gives), ...)) if many else gives, many)
    return found


def _wrong(kind: Any, value: object) -> str:
    """Why a value is none of this kind, looked into to its end; empty where it is."""
    try:
        _one_of(kind).validate_python((value,))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"][1:]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    return ""


@cache
def _one_of(kind: Any) -> TypeAdapter[tuple[Any]]:
    one: Any = GenericAlias(tuple, (kind,))
    return TypeAdapter(one, config=EXACTLY)


def _head(function: Function, file: Path) -> Place:
    """Where a function begins."""
    code = getattr(function, "__code__", None)
    return Place(Path(code.co_filename), code.co_firstlineno) if code else Place(file)


def _steps(error: BaseException) -> Iterator[Place]:
    step = error.__traceback__
    while step:
        yield Place(Path(step.tb_frame.f_code.co_filename).resolve(), step.tb_lineno)
        step = step.tb_next
