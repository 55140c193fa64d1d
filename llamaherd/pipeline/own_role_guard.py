"""A fleet's own role, guarded: whatever its functions raise, or give that they must not, is a finding with its line."""

from __future__ import annotations

import collections.abc
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import GenericAlias
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import InventoryError, Place, UserError
from llamaherd.inventory.keys import UnreadableKeyError
from llamaherd.lock.apply import NotLockedError
from llamaherd.pipeline.own_role_rules import OWN_ROLE
from llamaherd.role.changes import Change, DeferredVerb
from llamaherd.role.role import Inspection, Role, Task, Verification
from llamaherd.text.characters import harmful
from llamaherd.text.numbers import MOST

Value = TypeVar("Value", Role, Task, DeferredVerb, Inspection[Any], Verification[Any])
Function = Callable[..., Any]

EXACTLY = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)
"""Nothing is taken for something else, and values that are made already are looked into."""

MODULE = "_fleet_role_"
"""How the names of these roles' modules begin."""

MEANT = (InventoryError, UserError, UnreadableKeyError, NotLockedError)
"""What a role raises to say what is wrong, in a sentence of its own."""

LONGEST = 200
"""Characters of what an error says that are shown."""

_REFUSE = ("parse", "inspection.take")
_MOST_ITEMS, _MOST_VALUES, _MOST_TEXT = 10_000, 500_000, 8 << 20
"""What a function may return: items of an iterable, values with all that they hold, and characters of a text."""


class _UnfitError(Exception):
    """Why a value cannot be used: a clause for a message."""


def guarded(found: object, folder: str, file: Path) -> Role:
    """Return the role of this file, with every function of it guarded. Raises InventoryError where a field is none."""
    try:
        role: Role = _fit(Role, found)
    except _UnfitError as error:
        message = f"role `{folder}` is none: {error}"
        raise InventoryError([OWN_ROLE.at(Place(file), message, "correct it there")]) from None
    guard = _Guard(role.name, file)
    if role.inspection:
        role = replace(role, inspection=guard.over(role.inspection, "inspection."))
    if role.verification:
        role = replace(role, verification=guard.over(role.verification, "verification."))
    return guard.over(role, "")


def is_own(error: BaseException) -> bool:
    """Return whether a role raised this, rather than what ends the program: Ctrl-C, or a limit of pyinfra's."""
    return isinstance(error, Exception | SystemExit | GeneratorExit) or type(error).__module__.startswith(MODULE)


def place_of(error: BaseException, file: Path) -> Place:
    """The line of the role's own that an error came from."""
    folder = file.resolve().parent
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        source = Path(error.filename).resolve()
        if source.is_relative_to(folder):
            return Place(source, error.lineno, error.offset or 1)
    own = [place for place in _steps(error) if place.file.is_relative_to(folder)]
    return own[-1] if own else Place(file)


def as_raised(error: BaseException) -> str:
    """An error by its kind, and what it says."""
    try:
        said = str(error)[:LONGEST]
    except Exception:  # `__str__` is the role's own, too
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


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
            if (function := getattr(value, name)) is not None
        }
        return replace(value, **guards)

    def _around(self, function: Function, gives: Gives, called: str) -> Function:
        kind, many = gives

        def call(*arguments: Any) -> Any:
            try:
                given = function(*arguments)
                if many and isinstance(given, collections.abc.Iterable) and not isinstance(given, str):
                    given = tuple(islice(given, _MOST_ITEMS + 1))
            except MEANT:
                raise
            except BaseException as error:
                if not is_own(error) or (called in _REFUSE and isinstance(error, ValueError)):
                    raise  # of these, it says that the host cannot have returned this
                raise self._error(called, place_of(error, self.file), f"ends in {as_raised(error)}") from None
            try:
                if many and isinstance(given, tuple) and len(given) > _MOST_ITEMS:
                    raise _UnfitError(f"more than {_MOST_ITEMS:,} items")
                given = _fit(kind, given)
            except _UnfitError as error:
                raise self._error(called, _head(function, self.file), f"gives what it must not: {error}") from None
            return tuple(self._inside(each, called) for each in given) if many else given

        return call

    def _inside(self, given: Any, called: str) -> Any:
        """Functions are in what functions give, too."""
        if isinstance(given, Task):
            return self.over(given, f"{called}: ")
        if isinstance(given, Change) and isinstance(given.how, DeferredVerb):
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


def _fit(kind: Any, value: object) -> Any:
    """Return the value as one of this kind, without the methods of a subclass. Raises _UnfitError."""
    try:
        (found,) = _one_of(kind).validate_python((value,))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"][1:]))
        raise _UnfitError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    except Exception as error:  # of a method that is the role's own, such as `__len__`
        raise _UnfitError(as_raised(error)) from None
    _refuse_excess(found)
    return found


def _refuse_excess(whole: Any) -> None:
    """Raise _UnfitError for a value that is too large, or holds what can be neither shown nor sent to a host."""
    left, count = [whole], 0
    while left:
        value = left.pop()
        count += 1
        match value:
            case _ if count > _MOST_VALUES:
                raise _UnfitError(f"it holds more than {_MOST_VALUES:,} values")
            case str():
                _refuse_text(value)
            case int() if abs(value) > MOST:
                raise _UnfitError("a number in it is too large")
            case float() if not math.isfinite(value):
                raise _UnfitError(f"a number in it is {value}")
            case Mapping():
                left += [*value.keys(), *value.values()]
            case tuple() | list() | frozenset() | set():
                left += value
            case BaseModel():
                left += [each for _, each in value]
            case _ if is_dataclass(value) and not isinstance(value, type):
                left += [getattr(value, each.name) for each in fields(value)]


def _refuse_text(text: str) -> None:
    if len(text) > _MOST_TEXT:
        raise _UnfitError(f"a text in it is longer than {_MOST_TEXT:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _UnfitError(f"a text in it holds {harmful(text[error.start])}") from None
    if "\0" in text:
        raise _UnfitError("a text in it holds a NUL")


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
