"""The roles of a fleet: those of llamaherd, and those in its own folder, whose errors become findings."""

from __future__ import annotations

import collections.abc
import hashlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from llamaherd.diagnostics.findings import Finding, InventoryError, Place, Rule, UserError
from llamaherd.inventory.api_keys import UnreadableKeyError
from llamaherd.lock.apply import NotLockedError
from llamaherd.pipeline.load import inventory_folder
from llamaherd.role.changes import Change, DeferredVerb
from llamaherd.role.role import Inspection, Role, Task, Verification
from llamaherd.text.numbers import MOST
from llamaherd.text.quoting import harmful
from roles import ROLES

OWN_ROLE = Rule(
    "LH290",
    "A role of the fleet's own cannot be used.",
    why="""
    A folder `roles/<name>/` in the inventory folder is a role: Python that `herd` loads. It has no `ROLE`, its name
    differs from its folder's or is one of llamaherd's roles, or it fails: while it is loaded, or while one of its
    functions runs. Or a function returns a wrong type, such as a list instead of a text.
    """,
    example="""
    $ herd check
    /home/tom/fleet/roles/motd/__init__.py: error LH290: role `motd` has no ROLE
      help: give it one: `ROLE = Role(name="motd", …)`
    """,
    language="console",
    fix="[roles.md](../roles.md) has a whole one, as an example.",
)


Value = TypeVar("Value", Role, Task, DeferredVerb, Inspection[Any], Verification[Any])
Function = Callable[..., Any]

STRICT = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)
"""No value is converted, and the fields of existing values are validated, too."""

DEPLOY = "deploy.py"
"""The file of a role that is plain pyinfra."""

MODULE_PREFIX = "_fleet_role_"
"""The beginning of the names of these roles' modules."""

OWN_ERRORS = (InventoryError, UserError, UnreadableKeyError, NotLockedError)
"""Errors that a role raises with a message for the user."""

LONGEST_ERROR = 200
"""The most characters of an error's message that are shown."""

_REFUSE = ("parse", "inspection.parts")
_MOST_ITEMS, _MOST_VALUES, _MOST_TEXT = 10_000, 500_000, 8 << 20
"""Limits of what a function may return: items of an iterable, values in all, and characters of a text."""


class _UnfitError(Exception):
    """Why a value cannot be used: a clause for a message."""


def guarded(found: object, folder: str, file: Path) -> Role:
    """Return the role of this file, with all its functions guarded. Raises InventoryError for an invalid field."""
    try:
        role: Role = _fit(Role, found)
    except _UnfitError as error:
        message = f"role `{folder}` is invalid: {error}"
        raise InventoryError([OWN_ROLE.at(Place(file), message, "correct it there")]) from None
    guard = _Guard(role.name, file)
    if role.inspection:
        role = replace(role, inspection=guard.over(role.inspection, "inspection."))
    if role.verification:
        role = replace(role, verification=guard.over(role.verification, "verification."))
    return guard.over(role, "")


def is_own(error: BaseException) -> bool:
    """Return whether a role raised this, rather than what ends the program: Ctrl-C, or a limit of pyinfra's."""
    return isinstance(error, Exception | SystemExit | GeneratorExit) or type(error).__module__.startswith(MODULE_PREFIX)


def place_of(error: BaseException, file: Path) -> Place:
    """Return the line in the role's own folder that an error came from."""
    folder = file.resolve().parent
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        source = Path(error.filename).resolve()
        if source.is_relative_to(folder):
            return Place(source, error.lineno, error.offset or 1)
    own = [place for place in _steps(error) if place.file.is_relative_to(folder)]
    return own[-1] if own else Place(file)


def as_raised(error: BaseException) -> str:
    """Return an error's kind and its message."""
    try:
        message = str(error)[:LONGEST_ERROR]
    except Exception:  # `__str__` is the role's own, too
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class ReturnType(NamedTuple):
    """The type that a function returns, or the type of the items in the iterable that it returns."""

    kind: Any
    many: bool


class _Guard:
    """Wraps the functions of one role: converts their errors, and checks what they return."""

    def __init__(self, role: str, file: Path) -> None:
        self.role = role
        self.file = file

    def over(self, value: Value, of: str) -> Value:
        """Return the same value with wrapped functions: each returns its declared type or raises InventoryError.

        Defaults stay as they are: a role that has one does not define the function.
        """
        guards: dict[str, Any] = {
            name: self._around(function, gives, called=of + name)
            for name, gives in _return_types(type(value)).items()
            if (function := getattr(value, name)) not in (None, getattr(type(value), name, None))
        }
        return replace(value, **guards)

    def _around(self, function: Function, gives: ReturnType, called: str) -> Function:
        kind, many = gives

        def call(*arguments: Any) -> Any:
            try:
                given = function(*arguments)
                if many and isinstance(given, collections.abc.Iterable) and not isinstance(given, str):
                    given = tuple(islice(given, _MOST_ITEMS + 1))
            except OWN_ERRORS:
                raise
            except BaseException as error:
                if not is_own(error) or (called in _REFUSE and isinstance(error, ValueError)):
                    raise  # by a ValueError, these functions reject the output of a host
                raise self._error(called, place_of(error, self.file), f"ends in {as_raised(error)}") from None
            try:
                if many and isinstance(given, tuple) and len(given) > _MOST_ITEMS:
                    raise _UnfitError(f"more than {_MOST_ITEMS:,} items")
                given = _fit(kind, given)
            except _UnfitError as error:
                raise self._error(
                    called, _place_of_function(function, self.file), f"returns an invalid value: {error}"
                ) from None
            return tuple(self._inside(each, called) for each in given) if many else given

        return call

    def _inside(self, given: Any, called: str) -> Any:
        """Wrap the functions in a returned value, too."""
        if isinstance(given, Task):
            return self.over(given, f"{called}: ")
        if isinstance(given, Change) and isinstance(given.how, DeferredVerb):
            return replace(given, how=self.over(given.how, f"{called}: "))
        return given

    def _error(self, called: str, place: Place, what: str) -> InventoryError:
        message = f"`{called}` of role `{self.role}` {what}"
        return InventoryError([OWN_ROLE.at(place, message, "correct it there")])


def _return_types(kind: Any) -> dict[str, ReturnType]:
    """Return the type that each function of such a value returns, by its name."""
    found: dict[str, ReturnType] = {}
    for name, hint in get_type_hints(kind).items():
        for each in (hint, *get_args(hint)):
            if get_origin(each) is collections.abc.Callable:
                gives = get_args(each)[-1]
                many = get_origin(gives) in (collections.abc.Iterable, collections.abc.Sequence)
                found[name] = ReturnType(GenericAlias(tuple, (*get_args(gives), ...)) if many else gives, many)
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
    return TypeAdapter(one, config=STRICT)


def _place_of_function(function: Function, file: Path) -> Place:
    """Return the place of a function."""
    code = getattr(function, "__code__", None)
    return Place(Path(code.co_filename), code.co_firstlineno) if code else Place(file)


def _steps(error: BaseException) -> Iterator[Place]:
    step = error.__traceback__
    while step:
        yield Place(Path(step.tb_frame.f_code.co_filename).resolve(), step.tb_lineno)
        step = step.tb_next


OUR_ROLES = frozenset(role.name for role in ROLES)
"""The names of the roles that every fleet has."""


def all_roles(inventory: Path) -> tuple[Role, ...]:
    """Return all roles of an inventory's fleet in the order in which they are applied.

    The fleet's own roles come before servers, by name. Raises InventoryError.
    """
    servers = next(number for number, role in enumerate(ROLES) if role.name == "serve")
    folder = inventory_folder(inventory) / "roles"
    files = {file.parent.name: file for name in (DEPLOY, "__init__.py") for file in folder.glob(f"*/{name}")}
    found = [_own_role(file) for _, file in sorted(files.items())]
    if wrong := [each for each in found if isinstance(each, Finding)]:
        raise InventoryError(wrong)
    return (*ROLES[:servers], *(each for each in found if isinstance(each, Role)), *ROLES[servers:])


def _own_role(file: Path) -> Role | Finding:
    """Return a role of the fleet, or the finding that reports why it is invalid."""
    name = file.parent.name
    try:
        found = _deploy_role(file) if file.name == DEPLOY else getattr(_load_module(file), "ROLE", None)
        is_role = isinstance(found, Role)
    except BaseException as error:  # whatever the module raises becomes a finding about it
        if not is_own(error):
            raise
        message = f"role `{name}` cannot be loaded: {as_raised(error)}"
        return OWN_ROLE.at(place_of(error, file), message, "correct it there")
    if not is_role:
        return OWN_ROLE.at(Place(file), f"role `{name}` has no ROLE", f'give it one: `ROLE = Role(name="{name}", …)`')
    try:
        role = replace(guarded(found, name, file), folder=file.parent)
    except InventoryError as error:
        return error.findings[0]
    if role.name != name:
        message = f"the role in this folder is called `{role.name}`"
        return OWN_ROLE.at(Place(file), message, "call folder and role alike")
    if role.thing in {each.thing for each in ROLES}:
        return OWN_ROLE.at(Place(file), f"`{role.thing}` is a role of llamaherd's", "call it otherwise")
    return role


def _deploy_role(file: Path) -> Role:
    """Return a role that is plain pyinfra. Its module is loaded when pyinfra runs it."""
    name = file.parent.name
    line = f"  {name:<10} operations of {file.parent.parent.name}/{name}/{DEPLOY}"
    return Role(name=name, summary="Its operations have run.", deploy=file, describe=lambda *_: [line])


def load_deploy(role: Role) -> Function:
    """Return the `@deploy` function of a role that is plain pyinfra. Raise InventoryError if it has none."""
    file, name = role.deploy, role.name.replace("-", "_")
    assert file
    function = getattr(_load_module(file), name, None)
    if not callable(function):
        help_ = f"write `@deploy({name!r})` and below it `def {name}():`"
        raise InventoryError([OWN_ROLE.at(Place(file), f"role `{role.name}` has no function `{name}`", help_)])
    return cast(Function, function)


@contextmanager
def deploy_errors(role: Role) -> Iterator[None]:
    """Raise InventoryError, with file and line, for what the `deploy.py` of a role raises."""
    assert role.deploy
    try:
        yield
    except OWN_ERRORS:
        raise
    except BaseException as error:
        if not is_own(error):
            raise
        message = f"{DEPLOY} of role `{role.name}` ends in {as_raised(error)}"
        raise InventoryError([OWN_ROLE.at(place_of(error, role.deploy), message, "correct it there")]) from None


def _load_module(file: Path) -> ModuleType:
    """Load the package in a folder under a unique name, once for each folder."""
    folder = file.resolve().parent
    name = f"{MODULE_PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(folder)])
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
