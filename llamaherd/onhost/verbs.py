"""The verbs of the program: each is a function of a frozen input and of a System. Roles bring theirs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from llamaherd.onhost.document import VERSION, DocumentError, decode
from llamaherd.onhost.system import System

_NAME = re.compile(r"([a-z][a-z0-9_]{0,40})(\.[a-z][a-z0-9_]{0,40})?\.([a-z][a-z0-9_]{0,40})")
_OF_ALL_ROLES = {"inspect": "llamaherd.onhost.inspection", "verify": "llamaherd.onhost.verification"}
_NO_ROLE = "llamaherd"

Input = TypeVar("Input")


@dataclass(frozen=True)
class Verb(Generic[Input]):
    """What is done on a host: the type of its input, and the function that does it and returns its result."""

    input: type[Input]
    run: Callable[[Input, System], object]


def find_verb(name: str) -> Verb[Any]:
    """Return the verb `ROLE.VERB` of `roles.ROLE.onhost`, or `ROLE.MODULE.VERB` of `roles.ROLE.onhost.MODULE`.

    `inspect` and `verify` are of all roles, and `llamaherd.MODULE.VERB` is of no role. Raise DocumentError where there
    is none.
    """
    if name in _OF_ALL_ROLES:
        module, verb = _OF_ALL_ROLES[name], name
    elif (found := _NAME.fullmatch(name)) and found[1] == _NO_ROLE:
        module, verb = f"llamaherd.onhost{found[2] or ''}", found[3]
    elif found:
        module, verb = f"roles.{found[1]}.onhost{found[2] or ''}", found[3]
    else:
        raise DocumentError("the document names no verb")
    try:
        verbs: Mapping[str, Verb[Any]] = importlib.import_module(module).VERBS
        return verbs[verb]
    except (ModuleNotFoundError, AttributeError, KeyError):
        raise DocumentError(f"this version of the program has no verb `{name}`") from None


def perform(document: object, system: System) -> object:
    """Do what a parsed document asks for, and return its result. Raise DocumentError and FailedError."""
    if not isinstance(document, dict) or document.keys() != {"version", "verb", "input"}:
        raise DocumentError("the document does not have `version`, `verb` and `input` alone")
    if type(document["version"]) is not int or document["version"] != VERSION:
        raise DocumentError(f"this program reads version {VERSION} of documents alone")
    if not isinstance(document["verb"], str):
        raise DocumentError("the document names no verb")
    verb = find_verb(document["verb"])
    return verb.run(decode(verb.input, document["input"]), system)
