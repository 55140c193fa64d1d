"""From YAML files to a checked fleet: rigs, `fleet.yaml`, local headers, and all findings at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from llamaherd.checks.context import FleetContext, RigContext
from llamaherd.checks.files import absent_files, find_unsafe_files, guessed_keys
from llamaherd.checks.mistakes import UNKNOWN_KEY, mistakes
from llamaherd.checks.registry import CHECKS, FLEET_CHECKS
from llamaherd.diagnostics.findings import MOST_SHOWN, Finding, InventoryError, Place, nearest
from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.engines import served_whole
from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import join_headers, read_headers
from llamaherd.inventory.api_keys import ServerKey, server_keys, with_server_keys
from llamaherd.inventory.schema import LOCAL, Fleet, Rig
from llamaherd.inventory.schema.fleet_file import FleetFile, Gateway, split_served
from llamaherd.inventory.yaml_file import (
    DEFAULTS,
    EXTENDS,
    NOT_INHERITED,
    OWN_KEYS,
    UNREADABLE,
    Document,
    inherited,
    parse_yaml,
    read_yaml,
)
from llamaherd.lock import Lock
from llamaherd.lock.local_files import with_built, with_hashes
from llamaherd.memory.facts import RigFacts, rig_facts
from llamaherd.pipeline.discovery import INVENTORY, SUFFIXES, is_recipe_file, searched_folders
from llamaherd.pipeline.rules import NO_INVENTORY, NOT_SIZED, SAME_MACHINE, SAME_NAME, UNKNOWN_RIG
from llamaherd.text.quoting import comment

Read = Callable[[Path], Document]
"""Reads a YAML file of the inventory. Raises InventoryError."""


@dataclass(frozen=True)
class LocalHeaders:
    """Headers by name of model, and a sentence for each model whose header cannot be read."""

    headers: dict[str, Header] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


def local_headers(rig: Rig, lock: Lock | None) -> LocalHeaders:
    """Return the headers of the rig's model files on this machine that are not in the lock.

    A missing file is left out: other checks report it. No more than a header is read, 128 MiB at most.
    """
    found = LocalHeaders()
    for name, model in rig.models.items():
        if model.file is None or (lock and lock.header(model)) or name in served_whole(rig):
            continue
        try:
            model.file.stat()  # a missing file is not a faulty one
            found.headers[name] = join_headers(read_headers(model.file))
        except GgufError as error:
            found.faults[name] = str(error)
        except OSError:
            continue
    return found


FLEET = "fleet.yaml"
_OF_A_RIG = ("rig", EXTENDS)
"""A file with one of these keys is a rig, whatever its name."""


@dataclass(frozen=True)
class FleetSurvey:
    """The content of a fleet's file, as far as it can be read, its document, and the findings of its text."""

    declared: FleetFile | None
    document: Document | None
    findings: tuple[Finding, ...] = ()


NO_FLEET_FILE = FleetSurvey(None, None)


def is_fleet_file(file: Path) -> bool:
    """Return whether a file in a folder of rigs is the fleet's own file, and not a rig."""
    if file.name != FLEET:
        return False
    try:
        return not any(key in read_yaml(file).data for key in _OF_A_RIG)
    except InventoryError:
        return True


def survey_fleet_file(folder: Path, read: Read = read_yaml) -> FleetSurvey:
    """Return the fleet's file in a folder of rigs; an empty survey if there is none."""
    file = folder / FLEET
    if not file.exists() or not is_fleet_file(file):
        return NO_FLEET_FILE
    try:
        document = read(file)
    except InventoryError as error:
        return FleetSurvey(None, None, error.findings)
    known = list(FleetFile.model_fields)
    strange = [key for key in document.data if key not in known]
    if strange:
        return FleetSurvey(None, document, tuple(_unknown_key(document, str(key), known) for key in strange))
    try:
        declared = FleetFile.model_validate(document.data, context={"folder": file.resolve().parent})
    except ValidationError as error:
        found = mistakes(document, error.errors(include_url=False), MOST_SHOWN)
        return FleetSurvey(None, document, tuple(found))
    return FleetSurvey(declared, document)


def backing_up(declared: FleetFile | None, rigs: Mapping[str, Rig]) -> tuple[frozenset[str], ...]:
    """Return the groups of rigs that back each other up: those that serve the same model, and those with gateways."""
    gateway = declared.gateway if declared else None
    if gateway is None:
        return ()
    gateways = frozenset(name for name in gateway.on if name in rigs)
    groups = [gateways, *(_serving_rigs(name, gateway, rigs) for name in gateway.models)]
    return tuple(group for group in dict.fromkeys(groups) if len(group) > 1)


def _serving_rigs(model: str, gateway: Gateway, rigs: Mapping[str, Rig]) -> frozenset[str]:
    """Return the rigs that serve a model; for a single rig, also the rigs of its fallback, which replaces it."""
    found: frozenset[str] = frozenset()
    left: str | None = model
    for _ in gateway.models:
        if left is None or len(found) > 1:
            break
        served = (split_served(named, rigs) for named in gateway.models[left].serve)
        found |= {pair[0] for pair in served if pair}
        left = gateway.models[left].fallback
    return found


def fleet_findings(
    survey: FleetSurvey,
    rigs: Mapping[str, Rig],
    names: frozenset[str],
    keys: Sequence[ServerKey] = (),
    *,
    deploying: bool,
) -> list[Finding]:
    """Return the findings of a fleet's file. `names` are the names of all rigs, also of those that are not in `rigs`.

    `keys` are the keys that servers are given. With `deploying`, all other keys must be on this machine.
    """
    if survey.declared is None or survey.document is None:
        return list(survey.findings)
    subject = FleetContext(survey.declared, survey.document, rigs, names, tuple(keys))
    found = [finding for check in FLEET_CHECKS for finding in check(subject)]
    return [*found, *find_unsafe_files(subject, "error" if deploying else "warning")]


def _unknown_key(document: Document, key: str, known: list[str]) -> Finding:
    help_ = "if this file is a rig, begin it with `rig: NAME`" if key in Rig.model_fields else nearest(key, known)
    return UNKNOWN_KEY.at(document.key((key,)), f"there is no key `{comment(key)[:60]}` in {FLEET}", help_)


Edit = Callable[[Document], Document]
"""Changes a rig that was read, before it is checked."""


def load_fleet(source: Path, lock: Lock | None = None, *, deploying: bool = False) -> Fleet:
    """Return the fleet that a YAML file, or every YAML file of a folder, declares. Raises InventoryError.

    With `deploying`, the controller's files that the inventory names must exist; a plan does not need them.
    """
    fleet, findings = examine_fleet(source, lock, deploying=deploying)
    if any(finding.severity == "error" for finding in findings):
        raise InventoryError(findings)
    return fleet


@dataclass(frozen=True)
class Survey:
    """The readable part of a fleet, all findings about it, and each rig's document by the rig's name.

    `around` are its rigs and, if models or a gateway's servers may be on further rigs, all rigs in the same folder.
    `own` is the content of the fleet's own file. `keys` are given to the servers behind its gateway.
    """

    fleet: Fleet
    findings: tuple[Finding, ...]
    documents: Mapping[str, Document]
    facts: Mapping[str, RigFacts]
    around: Mapping[str, Rig] = field(default_factory=dict)
    own: FleetFile | None = None
    keys: tuple[ServerKey, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether the fleet can be used."""
        return not any(finding.severity == "error" for finding in self.findings)


def examine_fleet(
    source: Path, lock: Lock | None = None, *, deploying: bool = False
) -> tuple[Fleet, tuple[Finding, ...]]:
    """Return the readable part of the fleet, and all findings about it, also about locked models."""
    surveyed = survey_fleet(source, lock, deploying=deploying)
    return surveyed.fleet, surveyed.findings


def survey_fleet(
    source: Path,
    lock: Lock | None = None,
    *,
    deploying: bool = False,
    edit: Edit | None = None,
    texts: Mapping[Path, str] = MappingProxyType({}),
) -> Survey:
    """Return the same as `examine_fleet`, with documents and facts. `edit` may change each rig before it is checked.

    An edited rig is a candidate and not part of the fleet, so the fleet's own checks are left out then. `texts` replace
    files of the inventory, or are those of rigs that are not written yet.
    """
    findings: list[Finding] = []
    rigs: dict[str, Rig] = {}
    wholes: dict[str, Document] = {}
    try:
        files = _rig_files(source, texts)
    except InventoryError as error:
        return Survey(Fleet(rigs={}), error.findings, {}, {})
    read = _read_folder(
        files, findings, lambda file: parse_yaml(file, texts[file]) if file in texts else read_yaml(file)
    )
    folder, of_fleet = files[0].parent.resolve(), read.of_fleet
    read_well: list[tuple[Rig, Document]] = []
    for each in read.documents:
        try:
            whole = inherited(each, read.others, read.defaults)
            whole = edit(whole) if edit else whole
            rig = with_built(with_hashes(_parse_rig(whole), lock, folder), lock, folder)
        except InventoryError as error:
            findings.extend(error.findings)
            continue
        findings.extend(_among_rigs(rig, each, rigs))
        rigs[rig.rig] = rig
        wholes[rig.rig] = whole
        read_well.append((rig, whole))
    readable = _readable(read.siblings, read.others, read.defaults)
    declared = {name: with_hashes(rig, lock, folder) for name, rig in readable} | rigs
    # Servers whose rigs declare no key have it in the folder of the fleet's file.
    document = of_fleet.document
    keys = server_keys(of_fleet.declared, declared, document.file.resolve().parent) if document else ()
    around = {name: with_server_keys(rig, keys) for name, rig in declared.items()}
    facts: dict[str, RigFacts] = {}
    for rig, whole in read_well:
        local = local_headers(rig, lock)
        for name, fault in local.faults.items():  # no engine would load these files either
            place = whole.value(("models", name, "file"))
            findings.append(NOT_SIZED.at(place, f"model `{name}` cannot be sized: {fault}", "name a GGUF file"))
        facts[rig.rig] = locked_facts(with_server_keys(rig, keys), lock, local.headers)
        subject = RigContext(
            facts[rig.rig], whole, around, frozenset(read.others), of_fleet.declared, not of_fleet.findings
        )
        findings.extend(finding for check in CHECKS for finding in check(subject))
        findings.extend(absent_files(rig, whole, "error" if deploying else "warning"))
        findings.extend(guessed_keys(rig, whole))
    if edit is None:
        findings.extend(fleet_findings(of_fleet, around, frozenset(read.others), keys, deploying=deploying))
    ordered = tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.place))
    fleet = Fleet(rigs={name: around[name] for name in rigs})
    return Survey(fleet, ordered, wholes, facts, around, of_fleet.declared, keys)


def read_rigs(source: Path) -> Survey:
    """Return the readable rigs of an inventory and the fleet's own file, without any check. Raises InventoryError."""
    files = _rig_files(source)
    read = _read_folder(files, [])
    rigs: dict[str, Rig] = {}
    wholes: dict[str, Document] = {}
    for document in read.documents:
        with suppress(InventoryError):
            whole = inherited(document, read.others, read.defaults)
            rig = _parse_rig(whole)
            rigs[rig.rig], wholes[rig.rig] = rig, whole
    return Survey(Fleet(rigs=rigs), (), wholes, {}, own=read.of_fleet.declared)


@dataclass(frozen=True)
class _Folder:
    """The documents of an inventory's files and of what belongs to them.

    `siblings` are other rigs of the folder, and `others` all rigs by name.
    """

    documents: tuple[Document, ...]
    defaults: Document | None
    of_fleet: FleetSurvey
    siblings: tuple[Document, ...]
    others: Mapping[str, Document]


def _read_folder(files: Sequence[Path], findings: list[Finding], read: Read = read_yaml) -> _Folder:
    documents = tuple(document for file in files if (document := _read_document(file, findings, read)))
    defaults = _defaults(files[0].with_name(DEFAULTS), findings, read)
    of_fleet = survey_fleet_file(files[0].parent, read)
    siblings = tuple(
        _sibling_documents([*documents, *([defaults] if defaults else [])], read, always=of_fleet.declared is not None)
    )
    others = {str(document.data.get("rig")): document for document in reversed([*documents, *siblings])}
    return _Folder(documents, defaults, of_fleet, siblings, others)


def _read_document(file: Path, findings: list[Finding], read: Read) -> Document | None:
    try:
        return read(file)
    except InventoryError as error:
        findings.extend(error.findings)
        return None


def _sibling_documents(documents: Sequence[Document], read: Read, *, always: bool) -> Iterator[Document]:
    """Yield the other rigs of the folder, if one of these files names another rig. Their findings are left out."""
    if documents and (always or any(document.data.keys() & {EXTENDS, "store"} for document in documents)):
        given = {document.file for document in documents}
        for file in _yaml_files(documents[0].file.parent):
            if file not in given and (document := _read_document(file, [], read)):
                yield document


def _readable(
    documents: Iterable[Document], others: Mapping[str, Document], defaults: Document | None
) -> Iterator[tuple[str, Rig]]:
    """Yield the rigs among the documents, by name."""
    for document in documents:
        with suppress(InventoryError):
            rig = _parse_rig(inherited(document, others, defaults))
            yield rig.rig, rig


def _yaml_files(folder: Path) -> list[Path]:
    """Return every file of a folder that must contain a rig. Raise InventoryError (LH001) for an unreadable folder."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name != DEFAULTS)
    except OSError as error:
        message = f"cannot read this folder: {error.strerror}"
        raise InventoryError([UNREADABLE.at(Place(folder), message, "check the path and its mode")]) from None
    return [file for file in files if not is_fleet_file(file) and not is_recipe_file(file)]


def _defaults(file: Path, findings: list[Finding], read: Read) -> Document | None:
    document = _read_document(file, findings, read) if file.exists() else None
    for key in sorted(OWN_KEYS & set(document.data)) if document else ():
        assert document is not None
        message = f"`{key}` identifies one rig, but {DEFAULTS} is for all rigs"
        findings.append(NOT_INHERITED.at(document.key((key,)), message, "move it to the rig's own file"))
    return document


def locked_facts(rig: Rig, lock: Lock | None, unlocked: Mapping[str, Header] = MappingProxyType({})) -> RigFacts:
    """Derive the facts of a rig from its lock; `unlocked` are headers of models without one there, by name."""
    if lock is None:
        return rig_facts(rig, unlocked)
    models = rig.models.items()
    headers = {name: header for name, model in models if (header := lock.header(model))}
    projectors = {name: size for name, model in models if (size := lock.projector_size(model))}
    shapes = {name: shape for name, model in models if (shape := lock.shape(model))}
    return rig_facts(rig, {**unlocked, **headers}, projectors, shapes)


def _among_rigs(rig: Rig, document: Document, rigs: Mapping[str, Rig]) -> Iterator[Finding]:
    if rig.rig in rigs:
        message = f"there are two rigs named `{rig.rig}`"
        yield SAME_NAME.at(document.value(("rig",)), message, "rename one of them")
    local = next((name for name, other in rigs.items() if rig.connect.host == LOCAL == other.connect.host), None)
    if local and local != rig.rig:
        message = f"rig `{rig.rig}` is this machine, and so is rig `{local}`"
        yield SAME_MACHINE.at(document.value(("connect",)), message, "declare one rig per machine")
    where = (rig.connect.host, rig.connect.port)
    same = next((name for name, other in rigs.items() if (other.connect.host, other.connect.port) == where), None)
    if same and same != rig.rig and not local:
        message = f"rigs `{same}` and `{rig.rig}` have the same host, `{comment(rig.connect.host)}`"
        help_ = "correct `connect`, or put the instances of both into one rig"
        yield SAME_MACHINE.at(document.value(("connect",)), message, help_, "warning")


def choose_rigs(fleet: Fleet, names: Iterable[str], source: Path) -> Fleet:
    """Return the rigs of these names, or all rigs without names. Raises InventoryError for a name that is no rig."""
    wanted = tuple(names)
    unknown = [name for name in wanted if name not in fleet.rigs]
    if unknown:
        raise InventoryError(
            UNKNOWN_RIG.at(Place(source), f"there is no rig `{name}`", _rig_meant(name, fleet)) for name in unknown
        )
    return Fleet(rigs={name: fleet.rigs[name] for name in wanted}) if wanted else fleet


def _rig_meant(name: str, fleet: Fleet) -> str:
    """Return the fix for a word that is no rig: a file of one, an instance, or another spelling."""
    first, _, second = name.partition("/")
    if second and first in fleet.rigs and not second.endswith(SUFFIXES):
        only = f"; `herd plan` and `herd up` have `--only {second}`" if second in fleet.rigs[first].servers else ""
        return f"write a rig alone: `{first}`{only}"
    if name.endswith(SUFFIXES):
        stem = Path(name).stem
        return f"write the name of the rig: `{stem}`" if stem in fleet.rigs else nearest(stem, fleet.rigs)
    having = [rig for rig in fleet.rigs if name in fleet.rigs[rig].servers]
    if having:
        return f"`{comment(name)}` is an instance: write its rig, `{having[0]}`"
    if name in ("all", "*", "."):
        return "leave the name out: a command without a name is for all rigs"
    return nearest(name, fleet.rigs)


def _rig_files(source: Path, texts: Iterable[Path] = ()) -> list[Path]:
    files = _yaml_files(source) if source.is_dir() else []
    files += [file for file in texts if file.parent == source and not file.exists()]
    if not source.is_dir() and source.exists() and source.name != DEFAULTS and not is_fleet_file(source):
        files = [source]
    if not files:
        raise InventoryError([_no_inventory(source)])
    return files


def _no_inventory(source: Path) -> Finding:
    """Return the finding of a missing inventory. Its help suggests a similar name, or how to create an inventory."""
    if source.is_dir():
        help_ = "write one YAML file per rig there; `herd init DIR` begins with one"
        return NO_INVENTORY.at(Place(source), "the inventory holds no rig", help_)
    if source.name in (DEFAULTS, FLEET) and source.exists():
        help_ = f"name the file of a rig, or the folder {source.parent}"
        return NO_INVENTORY.at(Place(source), f"{source.name} holds no rig: it is for all of them", help_)
    begin = "name a rig's file or a folder of them with -i or HERD_INVENTORY, or create a folder with `herd init DIR`"
    if source == INVENTORY and (folders := searched_folders()):
        here, *above = folders
        files = (file for file in _listed(here) if file.suffix in SUFFIXES)
        if locked := next((file for file in files if not os.access(file, os.R_OK)), None):
            why = "this file cannot be read: permission denied"
            return NO_INVENTORY.at(Place(locked), why, "check the owner and the mode of the file")
        where = f"{here} and the folders above it up to {above[-1]}" if above else f"{here}"
        message = f"there is no fleet folder: searched {where}; HERD_INVENTORY is not set"
        return NO_INVENTORY.at(Place(here), message, f"run the command in a fleet folder, {begin}")
    if source.suffix and source.suffix not in SUFFIXES:
        return NO_INVENTORY.at(Place(source), "there is no such file or folder", "check the path")
    if "*" in source.name:
        help_ = f"name the folder, `{source.parent}`: all its files are read"
        return NO_INVENTORY.at(Place(source), "no file has a name like that", help_)
    siblings = [path.name for path in _listed(source.parent) if path.is_dir() or path.suffix in SUFFIXES]
    close = misspelled_name(source.name, siblings)
    close = close or next((name for name in siblings if Path(name).stem == source.name), None)
    help_ = f"did you mean `{source.with_name(close)}`?" if close else begin
    return NO_INVENTORY.at(Place(source), "the inventory does not exist: there is no such file or folder", help_)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _parse_rig(document: Document) -> Rig:
    try:
        return Rig.model_validate(document.data, context={"folder": document.file.resolve().parent})
    except ValidationError as error:
        found = mistakes(document, error.errors(include_url=False), MOST_SHOWN)
        raise InventoryError(found) from None
