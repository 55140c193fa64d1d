"""The roles of a fleet: ours, and those that its own folder brings. The one module of the core that imports roles."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.pipeline.own_role_rules import OWN_ROLE
from llamaherd.role.role import Role
from roles import ROLES


def all_roles(inventory: Path) -> tuple[Role, ...]:
    """Every role of the fleet whose inventory this is, in the order in which they are carried out.

    The fleet's own come before servers, by name. Raises InventoryError.
    """
    *first, last = ROLES
    found = [_own(module) for module in sorted(_folder(inventory).glob("*/__init__.py"))]
    if wrong := [each for each in found if isinstance(each, Finding)]:
        raise InventoryError(wrong)
    return (*first, *(each for each in found if isinstance(each, Role)), last)


def _folder(inventory: Path) -> Path:
    return (inventory if inventory.is_dir() else inventory.parent) / "roles"


def _own(file: Path) -> Role | Finding:
    """A role of the fleet's, or why it is none."""
    name = file.parent.name
    try:
        found = getattr(_load(file), "ROLE", None)
    except (Exception, SystemExit) as error:  # whatever the module raises is told as what is wrong with it
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return OWN_ROLE.at(_place(error, file), f"role `{name}` cannot be loaded: {said}", "correct it there")
    if not isinstance(found, Role):
        return OWN_ROLE.at(Place(file), f"role `{name}` has no ROLE", f'give it one: `ROLE = Role(name="{name}", …)`')
    if found.name != name:
        message = f"the role in this folder is called `{found.name}`"
        return OWN_ROLE.at(Place(file), message, "call folder and role alike")
    if name in {role.name for role in ROLES}:
        return OWN_ROLE.at(Place(file), f"`{name}` is a role of llamaherd's", "call it otherwise")
    return found


def _load(file: Path) -> ModuleType:
    """The package in a folder, under a name that nobody else has; once for each file."""
    folder = file.resolve().parent
    name = f"_fleet_role_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
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


def _place(error: BaseException, file: Path) -> Place:
    """The line of the role's own that the error came from."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Place(Path(error.filename), error.lineno, error.offset or 1)
    lines = [line for path, line in _steps(error) if path.is_relative_to(file.resolve().parent)]
    return Place(file, lines[-1] if lines else 1)


def _steps(error: BaseException) -> Iterator[tuple[Path, int]]:
    step = error.__traceback__
    while step:
        yield Path(step.tb_frame.f_code.co_filename).resolve(), step.tb_lineno
        step = step.tb_next
