"""From YAML files to a checked fleet. Everything wrong with them is collected and said at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from llamaherd.distributions import COMPOSE_PACKAGES
from llamaherd.findings import Finding, InventoryError, Place, Severity, nearest
from llamaherd.fleet import LOCAL, Fleet, Rig
from llamaherd.yamlfile import Document, read


def load(source: Path, *, deploying: bool = False) -> Fleet:
    """The fleet declared by one YAML file, or by every one in a folder. Raises InventoryError.

    `deploying` needs the files of the controller that the inventory names; who only plans can do without.
    """
    fleet, findings = examine(source, deploying=deploying)
    if any(finding.severity == "error" for finding in findings):
        raise InventoryError(findings)
    return fleet


def examine(source: Path, *, deploying: bool = False) -> tuple[Fleet, tuple[Finding, ...]]:
    """What can be read of the fleet, and everything that is wrong or doubtful about it."""
    findings: list[Finding] = []
    rigs: dict[str, Rig] = {}
    try:
        files = _files(source)
    except InventoryError as error:
        return Fleet(rigs={}), error.findings
    for file in files:
        try:
            document = read(file)
            rig = _rig(document)
        except InventoryError as error:
            findings.extend(error.findings)
            continue
        if rig.rig in rigs:
            message = f"there are two rigs named `{rig.rig}`"
            findings.append(Finding("LH006", document.value(("rig",)), message, "rename one of them"))
        local = next((name for name, other in rigs.items() if rig.connect.host == LOCAL == other.connect.host), None)
        if local and local != rig.rig:
            message = f"rig `{rig.rig}` is this machine, and so is rig `{local}`"
            findings.append(Finding("LH008", document.value(("connect",)), message, "declare one rig per machine"))
        rigs[rig.rig] = rig
        findings.extend(_check(rig, document))
        findings.extend(_missing_files(rig, document, "error" if deploying else "warning"))
    return Fleet(rigs=rigs), tuple(sorted(findings, key=lambda finding: finding.place))


def choose(fleet: Fleet, names: Iterable[str], source: Path) -> Fleet:
    """The rigs named, or all for no name. Raises InventoryError for a name that is no rig."""
    wanted = tuple(names)
    unknown = [name for name in wanted if name not in fleet.rigs]
    if unknown:
        raise InventoryError(
            Finding("LH007", Place(source), f"there is no rig `{name}`", nearest(name, fleet.rigs)) for name in unknown
        )
    return Fleet(rigs={name: fleet.rigs[name] for name in wanted}) if wanted else fleet


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        files = sorted(p for p in source.iterdir() if p.suffix in {".yaml", ".yml"})
    else:
        files = [source] if source.exists() else []
    if not files:
        what = "holds no YAML file" if source.is_dir() else "does not exist"
        raise InventoryError(
            [
                Finding(
                    "LH005",
                    Place(source),
                    f"the inventory {what}",
                    "write one YAML file per rig there, or name another inventory with -i or HERD_INVENTORY",
                )
            ]
        )
    return files


def _rig(document: Document) -> Rig:
    try:
        return Rig.model_validate(document.data, context={"folder": document.file.resolve().parent})
    except ValidationError as error:
        findings = [_finding(document, dict(problem)) for problem in error.errors()]
        # One value may stand for two, as in `kv: q8_0`: what is wrong with it is said once.
        raise InventoryError({(finding.code, finding.place): finding for finding in findings}.values()) from None


def _finding(document: Document, problem: dict[str, Any]) -> Finding:
    path: tuple[str | int, ...] = problem["loc"]
    if path and path[-1] == "[key]":
        path = path[:-1]
        place = document.key(path)
    else:
        place = document.value(path)
    shown = ".".join(str(part) for part in path)
    match problem["type"]:
        case "extra_forbidden":
            return Finding(
                "LH010",
                document.key(path),
                f"there is no key `{path[-1]}` here",
                nearest(str(path[-1]), _keys_at(Rig, path[:-1])),
            )
        case "missing":
            return Finding("LH011", document.value(path[:-1]), f"`{shown}` is missing", f"add `{path[-1]}:`")
        case "string_pattern_mismatch":
            pattern = problem["ctx"]["pattern"]
            return Finding(
                "LH012",
                place,
                f"`{problem['input']}` does not do for `{shown}`",
                _PATTERN_HELP.get(pattern, f"it must match {pattern}"),
            )
        case _:
            message = str(problem["msg"]).removeprefix("Value error, ")
            return Finding("LH012", place, f"`{shown}`: {message}", "see docs/inventory.md")


_PATTERN_HELP = {
    r"^[0-9a-f]{64}$": "a sha256 has 64 hexadecimal digits, lower case",
    r"^\S+@sha256:[0-9a-f]{64}$": "name the image by digest, as in NAME@sha256:…: a tag moves",
    r"^[0-9a-f]{40}$": "give all 40 hexadecimal digits of the commit: a branch or tag moves",
    r"^[a-z0-9][a-z0-9._-]{0,39}$": "names have up to 40 lower-case letters, digits, dots and dashes",
}


def _keys_at(model: type[BaseModel], path: tuple[str | int, ...]) -> set[str]:
    """The keys that the model knows at a path, for naming the nearest right one."""
    current: Any = model
    for part in path:
        current = _strip(current)
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[str(part)].annotation
        else:
            current = get_args(current)[-1]
    current = _strip(current)
    if isinstance(current, type) and issubclass(current, BaseModel):
        return set(current.model_fields)
    return set()


def _strip(annotation: Any) -> Any:
    """`X` for `X | None`."""
    if get_origin(annotation) in {Union, UnionType}:
        return next(arg for arg in get_args(annotation) if arg is not type(None))
    return annotation


def _check(rig: Rig, document: Document) -> Iterator[Finding]:
    """What a single rig can be wrong about beyond the shape of its keys."""
    ports: dict[int, str] = {}
    for name, instance in rig.instances.items():
        where = ("instances", name)
        engine = rig.engines.get(instance.engine)
        for field, known in (("engine", rig.engines), ("model", rig.models)):
            value = getattr(instance, field)
            if value not in known:
                yield Finding(
                    "LH020",
                    document.value((*where, field)),
                    f"instance `{name}` wants {field} `{value}`, which this rig does not declare",
                    nearest(value, known),
                )
        cards = rig.gpus.cards if rig.gpus else {}
        for index, card in enumerate(instance.on):
            if card not in cards:
                yield Finding(
                    "LH020",
                    document.value((*where, "on", index)),
                    f"instance `{name}` wants card `{card}`, which this rig does not declare",
                    nearest(card, cards),
                )
        if instance.port in ports:
            yield Finding(
                "LH021",
                document.value((*where, "port")),
                f"port {instance.port} is taken by instance `{ports[instance.port]}` already",
                "give each instance a port of its own",
            )
        ports.setdefault(instance.port, name)
        if instance.backend == "compose" and rig.host.os not in COMPOSE_PACKAGES:
            yield Finding(
                "LH026",
                document.value((*where, "backend")),
                f"{rig.host.os} has no Docker Compose 2 of its own",
                f"use `backend: systemd`, or a host with one of {', '.join(COMPOSE_PACKAGES)}",
            )
        if instance.backend == "compose" and instance.on and engine and engine.source:
            yield Finding(
                "LH028",
                document.value((*where, "backend")),
                f"the image made for `{name}` would lack the CUDA libraries that its engine is linked against",
                "use `backend: systemd`, or an engine with an `image` by digest",
            )
        if len(cards) > 1 and any(cards[card].uuid is None for card in instance.on if card in cards):
            yield Finding(
                "LH027",
                document.value((*where, "on")),
                f"instance `{name}` is to run on a card of several, and nothing tells which that is",
                "give each card its `uuid`, as `nvidia-smi -L` shows it",
            )
        if not instance.loopback and instance.api_key is None:
            yield Finding(
                "LH022",
                document.value((*where, "listen")),
                f"instance `{name}` would listen on {instance.listen} with no API key",
                "add `api_key: {file: PATH}`, or leave `listen` out to stay on loopback",
            )
        if engine and engine.image and instance.backend == "systemd":
            yield Finding(
                "LH025",
                document.value((*where, "engine")),
                f"instance `{name}` runs an image, which systemd does not start",
                "add `backend: compose`",
            )
        if instance.draft and engine and engine.kind == "ik_llama.cpp" and instance.parallel > 1:
            yield Finding(
                "LH023",
                document.value((*where, "parallel")),
                "ik_llama.cpp drops MTP when it serves more than one slot",
                "set `parallel: 1`, or leave `draft` out",
            )


def _missing_files(rig: Rig, document: Document, severity: Severity) -> Iterator[Finding]:
    named: list[tuple[tuple[str | int, ...], Path | None]] = [
        *(
            (("engines", name, "source", "archive"), engine.source.local_archive)
            for name, engine in rig.engines.items()
            if engine.source
        ),
        *((("models", name, "file"), model.file) for name, model in rig.models.items()),
        *((("instances", n, "api_key", "file"), i.api_key.file) for n, i in rig.instances.items() if i.api_key),
        (("connect", "key"), rig.connect.key),
        (("connect", "known_hosts"), rig.connect.known_hosts),
    ]
    for path, file in named:
        if file is not None and not _is_file(file):
            yield Finding(
                "LH024",
                document.value(path),
                f"there is no file {file}",
                "paths are relative to this YAML file; check the spelling, or fetch the file first",
                severity,
            )


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False
