"""From YAML files to a checked fleet. Everything wrong with them is collected and said at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from llamaherd.checks.context import RigContext
from llamaherd.checks.files import absent_files
from llamaherd.checks.mistakes import mistakes
from llamaherd.checks.registry import CHECKS
from llamaherd.diagnostics.findings import MOST_SHOWN, Finding, InventoryError, Place, nearest
from llamaherd.diagnostics.near import slip
from llamaherd.gguf.header import Header
from llamaherd.inventory.inheritance import DEFAULTS, EXTENDS, NOT_INHERITED, OWN_KEYS, inherited
from llamaherd.inventory.schema import LOCAL, Fleet, Rig
from llamaherd.inventory.schema.gateway import FleetFile
from llamaherd.inventory.server_keys import ServerKey, server_keys, with_server_keys
from llamaherd.inventory.yamlfile import Document, read_yaml
from llamaherd.inventory.yamlfile_rules import UNREADABLE
from llamaherd.lock import Lock
from llamaherd.lock.built import with_built
from llamaherd.pipeline.fleet_file import FLEET, FleetSurvey, fleet_findings, is_fleet_file, survey_fleet_file
from llamaherd.pipeline.load_fleet_rules import NO_INVENTORY, NOT_SIZED, SAME_MACHINE, SAME_NAME, UNKNOWN_RIG
from llamaherd.pipeline.local_headers import local_headers

SUFFIXES = (".yaml", ".yml")

Edit = Callable[[Document], Document]
"""What makes another rig of one that was read whole."""


def load_fleet(source: Path, lock: Lock | None = None, *, deploying: bool = False) -> Fleet:
    """The fleet declared by one YAML file, or by every one in a folder. Raises InventoryError.

    `deploying` needs the files of the controller that the inventory names; who only plans can do without.
    """
    fleet, findings = examine_fleet(source, lock, deploying=deploying)
    if any(finding.severity == "error" for finding in findings):
        raise InventoryError(findings)
    return fleet


@dataclass(frozen=True)
class Survey:
    """What can be read of a fleet, everything wrong or doubtful about it, and each rig's document by its name.

    `around` are its rigs and, where models or a gateway's servers may be others', those beside the file that was asked
    for. `own` is what the fleet's own file says. `keys` are those that servers behind its gateway are given.
    """

    fleet: Fleet
    findings: tuple[Finding, ...]
    documents: Mapping[str, Document]
    around: Mapping[str, Rig] = field(default_factory=dict)
    own: FleetFile | None = None
    keys: tuple[ServerKey, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the fleet can be used."""
        return not any(finding.severity == "error" for finding in self.findings)


def examine_fleet(
    source: Path, lock: Lock | None = None, *, deploying: bool = False
) -> tuple[Fleet, tuple[Finding, ...]]:
    """What can be read of the fleet, and everything that is wrong or doubtful about it.

    What the lock knows about models is checked as well.
    """
    surveyed = survey_fleet(source, lock, deploying=deploying)
    return surveyed.fleet, surveyed.findings


def survey_fleet(
    source: Path, lock: Lock | None = None, *, deploying: bool = False, edit: Edit | None = None
) -> Survey:
    """The same as `examine_fleet`, and where everything stands. `edit` may change each rig before it is checked.

    A rig that was edited is a candidate and no part of the fleet, so the fleet's own checks are left out then.
    """
    findings: list[Finding] = []
    rigs: dict[str, Rig] = {}
    wholes: dict[str, Document] = {}
    try:
        files = _files(source)
    except InventoryError as error:
        return Survey(Fleet(rigs={}), error.findings, {})
    documents = [document for file in files if (document := _read(file, findings))]
    defaults = _defaults(files[0].with_name(DEFAULTS), findings)
    of_fleet = survey_fleet_file(files[0].parent)
    beside = tuple(_beside([*documents, *([defaults] if defaults else [])], always=of_fleet.declared is not None))
    others = {str(document.data.get("rig")): document for document in reversed([*documents, *beside])}
    read_well: list[tuple[Rig, Document]] = []
    for document in documents:
        try:
            whole = inherited(document, others, defaults)
            whole = edit(whole) if edit else whole
            rig = with_built(_rig(whole), lock, files[0].parent)
        except InventoryError as error:
            findings.extend(error.findings)
            continue
        findings.extend(_among_rigs(rig, document, rigs))
        rigs[rig.rig] = rig
        wholes[rig.rig] = whole
        read_well.append((rig, whole))
    declared = dict(_readable(beside, others, defaults)) | rigs
    keys = _server_keys(of_fleet, declared)
    around = {name: with_server_keys(rig, keys) for name, rig in declared.items()}
    for rig, whole in read_well:
        findings.extend(_of_rig(with_server_keys(rig, keys), whole, lock, around, frozenset(others)))
        findings.extend(absent_files(rig, whole, "error" if deploying else "warning"))
    if edit is None:
        findings.extend(fleet_findings(of_fleet, around, frozenset(others), keys, deploying=deploying))
    ordered = tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.place))
    return Survey(Fleet(rigs={name: around[name] for name in rigs}), ordered, wholes, around, of_fleet.declared, keys)


def _server_keys(of_fleet: FleetSurvey, rigs: Mapping[str, Rig]) -> tuple[ServerKey, ...]:
    """The keys of servers for which the rigs name none: they lie beside the fleet's file."""
    document = of_fleet.document
    return server_keys(of_fleet.declared, rigs, document.file.resolve().parent) if document else ()


def _of_rig(
    rig: Rig, whole: Document, lock: Lock | None, around: Mapping[str, Rig], names: frozenset[str]
) -> Iterator[Finding]:
    """What is wrong or doubtful about a rig, as far as its file and the lock tell."""
    local = local_headers(rig, lock)
    headers = _headers(rig, lock) | local.headers
    subject = RigContext(rig, whole, headers, _projectors(rig, lock), around, names)
    yield from _unread(whole, local.faults)
    for check in CHECKS:
        yield from check(subject)


def _read(file: Path, findings: list[Finding]) -> Document | None:
    try:
        return read_yaml(file)
    except InventoryError as error:
        findings.extend(error.findings)
        return None


def _beside(documents: Sequence[Document], *, always: bool) -> Iterator[Document]:
    """Rigs in the folder of a file that names others; what is wrong with them is another matter."""
    if documents and (always or any(document.data.keys() & {EXTENDS, "store"} for document in documents)):
        asked = {document.file for document in documents}
        for file in _yaml_files(documents[0].file.parent):
            if file not in asked and (document := _read(file, [])):
                yield document


def _readable(
    documents: Iterable[Document], others: Mapping[str, Document], defaults: Document | None
) -> Iterator[tuple[str, Rig]]:
    """Those of the documents that are rigs, by name."""
    for document in documents:
        with suppress(InventoryError):
            rig = _rig(inherited(document, others, defaults))
            yield rig.rig, rig


def _yaml_files(folder: Path) -> list[Path]:
    """Every file of a folder that is to hold a rig. Raises InventoryError (LH001) if it may not be read."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name != DEFAULTS)
    except OSError as error:
        message = f"cannot read this folder: {error.strerror}"
        raise InventoryError([UNREADABLE.at(Place(folder), message, "check the path and its mode")]) from None
    return [file for file in files if not is_fleet_file(file)]


def _defaults(file: Path, findings: list[Finding]) -> Document | None:
    document = _read(file, findings) if file.exists() else None
    for key in sorted(OWN_KEYS & set(document.data)) if document else ():
        assert document is not None
        message = f"`{key}` says which machine a rig is; {DEFAULTS} is for all of them"
        findings.append(NOT_INHERITED.at(document.key((key,)), message, "move it to the rig's own file"))
    return document


def _headers(rig: Rig, lock: Lock | None) -> dict[str, Header]:
    if lock is None:
        return {}
    return {name: header for name, model in rig.models.items() if (header := lock.header(model))}


def _projectors(rig: Rig, lock: Lock | None) -> dict[str, int]:
    if lock is None:
        return {}
    return {name: size for name, model in rig.models.items() if (size := lock.projector_size(model))}


def _unread(document: Document, faults: Mapping[str, str]) -> Iterator[Finding]:
    """Files that no engine would load either."""
    for name, fault in faults.items():
        place = document.value(("models", name, "file"))
        yield NOT_SIZED.at(place, f"model `{name}` cannot be sized: {fault}", "name a GGUF file")


def _among_rigs(rig: Rig, document: Document, rigs: Mapping[str, Rig]) -> Iterator[Finding]:
    if rig.rig in rigs:
        message = f"there are two rigs named `{rig.rig}`"
        yield SAME_NAME.at(document.value(("rig",)), message, "rename one of them")
    local = next((name for name, other in rigs.items() if rig.connect.host == LOCAL == other.connect.host), None)
    if local and local != rig.rig:
        message = f"rig `{rig.rig}` is this machine, and so is rig `{local}`"
        yield SAME_MACHINE.at(document.value(("connect",)), message, "declare one rig per machine")


def choose(fleet: Fleet, names: Iterable[str], source: Path) -> Fleet:
    """The rigs named, or all for no name. Raises InventoryError for a name that is no rig."""
    wanted = tuple(names)
    unknown = [name for name in wanted if name not in fleet.rigs]
    if unknown:
        raise InventoryError(
            UNKNOWN_RIG.at(Place(source), f"there is no rig `{name}`", nearest(name, fleet.rigs)) for name in unknown
        )
    return Fleet(rigs={name: fleet.rigs[name] for name in wanted}) if wanted else fleet


def _files(source: Path) -> list[Path]:
    files = _yaml_files(source) if source.is_dir() else []
    if not source.is_dir() and source.exists() and source.name != DEFAULTS and not is_fleet_file(source):
        files = [source]
    if not files:
        raise InventoryError([_no_inventory(source)])
    return files


def _no_inventory(source: Path) -> Finding:
    """What to do where an inventory is to be and there is none: a name beside it that was meant, or how to begin."""
    if source.is_dir():
        help_ = "write one YAML file per rig there; `herd init DIR` begins with one"
        return NO_INVENTORY.at(Place(source), "the inventory holds no YAML file", help_)
    if source.name in (DEFAULTS, FLEET) and source.exists():
        help_ = f"name the file of a rig, or the folder {source.parent}"
        return NO_INVENTORY.at(Place(source), f"{source.name} holds no rig: it is for all of them", help_)
    beside = [path.name for path in _listed(source.parent) if path.is_dir() or path.suffix in SUFFIXES]
    close = slip(source.name, beside)
    close = close or next((name for name in beside if Path(name).stem == source.name), None)
    begin = "name another inventory with -i or HERD_INVENTORY, or begin one with `herd init DIR`"
    help_ = f"did you mean `{source.with_name(close)}`?" if close else begin
    return NO_INVENTORY.at(Place(source), f"the inventory does not exist: there is no {source}", help_)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _rig(document: Document) -> Rig:
    try:
        return Rig.model_validate(document.data, context={"folder": document.file.resolve().parent})
    except ValidationError as error:
        found = mistakes(document, error.errors(include_url=False), MOST_SHOWN)
        raise InventoryError(found) from None
