"""The roles of a fleet: ours, and those that its own folder brings. The one module of the core that imports roles."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.pipeline.own_role_guard import MODULE, as_raised, guarded, is_own, place_of
from llamaherd.pipeline.own_role_rules import OWN_ROLE
from llamaherd.role.role import Role
from roles import ROLES


def all_roles(inventory: Path) -> tuple[Role, ...]:
    """Every role of the fleet whose inventory this is, in the order in which they are carried out.

    The fleet's own come before servers, by name. Raises InventoryError.
    """
    servers = next(number for number, role in enumerate(ROLES) if role.name == "serve")
    found = [_own(module) for module in sorted(_folder(inventory).glob("*/__init__.py"))]
    if wrong := [each for each in found if isinstance(each, Finding)]:
        raise InventoryError(wrong)
    return (*ROLES[:servers], *(each for each in found if isinstance(each, Role)), *ROLES[servers:])


def _folder(inventory: Path) -> Path:
    return (inventory if inventory.is_dir() else inventory.parent) / "roles"


def _own(file: Path) -> Role | Finding:
    """A role of the fleet's, or why it is none."""
    name = file.parent.name
    try:
        found = getattr(_load(file), "ROLE", None)
        is_role = isinstance(found, Role)
    except BaseException as error:  # whatever the module raises is told as what is wrong with it
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


def _load(file: Path) -> ModuleType:
    """The package in a folder, under a name that nobody else has; once for each file."""
    folder = file.resolve().parent
    name = f"{MODULE}{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
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
