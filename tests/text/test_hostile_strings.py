"""Each hostile text in each place of an inventory and of a lock that holds one: refused with a finding, or there to be
read as it was meant by sh, systemd and YAML. The places are found by walking the models."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import DRAIN_SECONDS, Rig
from llamaherd.lock import Lock
from llamaherd.lock.apply import NotLockedError
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.servers import UnitState
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.apt import repository_changes
from llamaherd.role.changes import Change, RunVerb
from llamaherd.text.quoting import harmful
from roles.base import base_changes
from roles.cuda_toolkit import toolkit_changes
from roles.engines import build_changes
from roles.serve.changes import server_changes
from roles.serve.onhost.model import RemovalInput, SwitchInput
from roles.serve.removal import removal_changes
from roles.serve.verify import verification_input as verified_servers
from tests.conftest import SEARCH
from tests.support import systemd
from tests.support.hostile import CONTROL, EVERY, PLAIN
from tests.support.ours import plan
from tests.support.rigs import cpu_rig, gpu_rig, hub_lock, wsl_rig
from tests.support.sample import drawn
from tests.support.shell import expands
from tests.support.states import host_with

Path_ = tuple[str | int, ...]
COMMAND = "touch /tmp/PWNED"
KEY = "<key>"
"""In a path: the name of a key that the owner chooses."""
READABLE = tuple(text for text in EVERY if not re.search("[\ud800-\udfff]", text))
"""What a file can hold: halves of characters are refused by whoever reads it."""
EACH_FIELD = len(EVERY) if SEARCH else 6
"""How many texts a field is tried with in the quick tier: others for each."""


def places(annotation: Any, here: Path_ = ()) -> Iterator[Path_]:
    """Where a model holds texts: its fields, their items, the keys and values of mappings."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        yield from places(parts[0], here)
    elif kind in (Union, UnionType):
        for part in parts:
            yield from places(part, here)
    elif kind is dict:
        yield (*here, KEY)
        yield from places(parts[1], (*here, "a"))
    elif kind is tuple:
        yield from places(parts[0], (*here, 0))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from places(field.annotation, (*here, field.alias or name))
    elif isinstance(annotation, type) and issubclass(annotation, str | Path):
        yield here


def named(path: Path_) -> str:
    return ".".join(map(str, path)) or "whole"


FIELDS = sorted(set(places(Rig)), key=named)
LOCKED = sorted(set(places(Lock)), key=named)

SURROUNDINGS: dict[str, dict[str, Any]] = {
    "engines.a.source": {"git": "https://git.lan/a", "commit": "cd" * 20},
    "engines.a.source.archive": {"archive": "https://git.lan/a.tar", "sha256": "ab" * 32},
    "engines.a.source.ref": {"git": "https://git.lan/a", "ref": "b1"},
    "engines.a.source.version": {"number": 1},
    "models.a.file": {"file": "/srv/a.gguf", "sha256": "ab" * 32},
    "models.a": {"hf": "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "files": "UD-Q4_K_XL/*"},
}
"""What must stand beside a field so that a rig with it can be valid."""

RIGS = {"cpu": cpu_rig, "gpu": gpu_rig, "wsl": wsl_rig}


def rigs_for(path: Path_) -> Iterator[tuple[dict[str, Any], Path_]]:
    """Rigs in which the field can stand, and where: an owner's names are those of each rig's own things."""
    for make in RIGS.values():
        declared = make()
        at: list[str | int] = []
        inner: Any = declared
        for part in path[:-1]:
            part = next(iter(inner)) if part == "a" and isinstance(inner, dict) and inner else part
            at.append(part)
            inner = inner.get(part, {}) if isinstance(inner, dict) else {}
            inner = inner if isinstance(inner, dict) else {}
        yield declared, (*at, path[-1])


def put(declared: Any, path: Path_, text: str) -> Any:
    """The document with a text at a path, what is missing on the way added; None where it has no such place."""
    whole = copy.deepcopy(declared)
    inner = whole
    for number, part in enumerate(path[:-1]):
        beside = SURROUNDINGS.get(named((path[0], "a", *path[2 : number + 1])))
        if not isinstance(inner, dict):
            return None
        if not isinstance(inner.get(part), dict | list):
            inner[part] = [] if isinstance(path[number + 1], int) else dict(beside or {})
        inner = inner[part]
    last = path[-1]
    if last == KEY and isinstance(inner, dict):
        inner[text] = inner.pop(next(iter(inner))) if inner else "x"
    elif isinstance(inner, list):
        inner[:] = [text]
    elif isinstance(inner, dict):
        inner[last] = text
    return whole


@cache
def sample(path: Path_) -> tuple[str, ...]:
    """The texts that a field is tried with: another choice for each, the same every time."""
    chosen = random.Random(named(path))
    half = EACH_FIELD // 3
    return READABLE if SEARCH else (*chosen.sample(READABLE[:80], half), *chosen.sample(PLAIN, EACH_FIELD - half))


SEEN = host_with(units={"llama-old": UnitState("active", "enabled", False, "", "")})
"""A host that has nothing yet but another's unit."""


def verbs(planned: Plan) -> Iterator[RunVerb]:
    """What the program on a host is given for a plan: the removal of the old unit, then a switch of each instance."""
    steps = removal_changes(planned, SEEN)
    for instance in planned.instances:
        steps += server_changes(instance, SEEN, None)
    for step in steps:
        assert isinstance(step.how, RunVerb)
        yield step.how


def changes(planned: Plan) -> Iterator[Change]:
    """What else is done to a host that has nothing yet but another's unit."""
    yield from base_changes(planned, SEEN)
    for build in planned.builds:
        yield from build_changes(build, HostState())
    for repository in planned.repositories:
        yield from repository_changes(repository, SEEN)
    yield from toolkit_changes(planned, SEEN)


def scripts(planned: Plan) -> Iterator[str]:
    """What a host's shell is given for a plan."""
    yield from (step.script for step in changes(planned) if step.script)


def read_back(instance: InstancePlan) -> tuple[list[str], dict[str, str]]:
    """The arguments and variables of a server, as systemd or Compose reads its file."""
    if instance.backend == "compose":
        server = yaml.safe_load(instance.file.text)["services"]["server"]
        return [plain(each) for each in server["command"]], {
            key: plain(value) for key, value in server.get("environment", {}).items()
        }
    lines = list(systemd.directives(instance.file.text))
    (start,) = [value for _, key, value in lines if key == "ExecStart"]
    assigned = [each for _, key, value in lines if key == "Environment" for each in systemd.assignments(value)]
    return systemd.arguments(start)[1:], dict(each.split("=", 1) for each in assigned)


def read_by_engines(given: SwitchInput, instance: InstancePlan) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Each check of arguments, and the arguments that it is for."""
    meant = (instance.server.arguments, *(each.arguments for each in instance.members))
    yield from zip(given.arguments, map(tuple, meant), strict=bool(given.arguments))
    if given.container:
        yield given.container, tuple(instance.server.arguments)


def plain(text: str) -> str:
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


def declares_what_it_names(rig: Rig) -> bool:
    cards = rig.gpus.cards if rig.gpus else {}
    return rig.used_models <= rig.models.keys() and all(
        each.engine in rig.engines and set(each.on) <= cards.keys() for each in rig.instances.values()
    )


def judge(declared: dict[str, Any], text: str) -> str:
    """`refused` or `accepted`; anything that does not read as it was meant fails."""
    try:
        rig = Rig.model_validate(declared, context={"folder": Path("/srv")})
        if not declares_what_it_names(rig):
            return "refused"  # LH020
        made = plan(rig, hub_lock())
    except (ValidationError, NotLockedError):
        return "refused"
    for script in scripts(made):
        assert COMMAND not in script or not expands(script, COMMAND), text
    given_to_verbs = [how.given for step in changes(made) if isinstance(how := step.how, RunVerb)]
    for given in (*given_to_verbs, verified_servers(made)):
        assert decode(type(given), parse_document(dump(given).encode())) == given
    removal, *switches = verbs(made)
    assert removal.given == RemovalInput("old", "llama-old", "llama-old", True, False, True, DRAIN_SECONDS)
    for instance, how in zip(made.instances, switches, strict=True):
        given = decode(SwitchInput, parse_document(dump(how.given).encode()))
        assert given == how.given
        assert all(each.arguments == meant for each, meant in read_by_engines(given, instance))
        arguments, environment = read_back(instance)
        assert arguments == list(instance.server.arguments)
        # A group's server has the group's name, and serves its members.
        for name in [each.name for each in instance.members] or [instance.name]:
            assert environment.items() >= rig.instances[name].environment.items()
    return "accepted"


@pytest.mark.parametrize("path", drawn(FIELDS), ids=named)
def test_a_hostile_text_is_refused_or_read_as_it_was_meant(path: Path_) -> None:
    for text in sample(path):
        for declared, at in rigs_for(path):
            changed = put(declared, at, text)
            if changed is not None:
                judge(changed, text)


@pytest.mark.parametrize("path", drawn(FIELDS), ids=named)
def test_control_characters_are_refused_everywhere(path: Path_) -> None:
    """Also where lines are allowed, all but these are."""
    several = (path[:1] == ("instances",) and path[2:3] in [("environment",), ("extra_args",)]) or "overlay" in path
    for text in CONTROL if SEARCH else random.Random(named(path)).sample(CONTROL, 12):
        if harmful(text, lines=several and path[-1] != KEY) and not re.search("[\ud800-\udfff]", text):
            for declared, at in rigs_for(path):
                if changed := put(declared, at, f"a{text}"):
                    with pytest.raises(ValidationError):
                        Rig.model_validate(changed, context={"folder": Path("/srv")})


@pytest.mark.parametrize("path", drawn(LOCKED), ids=named)
def test_control_characters_are_refused_in_the_lock(path: Path_) -> None:
    locked = LOCK_DATA
    for text in CONTROL if SEARCH else random.Random(named(path)).sample(CONTROL, 12):
        changed = put(locked, path, f"a{text}")
        if changed is not None:
            with pytest.raises(ValidationError):
                Lock.model_validate(changed)


LOCK_DATA: dict[str, Any] = {"version": 2, **hub_lock().model_dump(mode="json", exclude_none=True)}


def test_the_file_says_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "box.yaml"
    declared = yaml.safe_dump(put(cpu_rig(), ("instances", "chat", "environment", "A"), "a\rb"))
    file.write_text(declared)
    _, findings = examine_fleet(file)
    (found,) = [each for each in findings if each.code == "LH013"]
    assert "carriage return (U+000D)" in found.message
    assert declared.splitlines()[found.place.line - 1].strip() == 'A: "a\\rb"'
    assert not harmful(str(found), lines=True)


@pytest.mark.parametrize(
    "listen", ["::1%$(touch /tmp/PWNED)", "fe80::1%eth0", "::1%\nUser=root", "::1%25", "a", "1.2.3"]
)
def test_an_address_has_no_scope(listen: str) -> None:
    assert judge(put(cpu_rig(), ("instances", "chat", "listen"), listen), listen) == "refused"
