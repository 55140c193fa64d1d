"""A model that is added to a rig: its files at the hub, and an instance of it that fits next to the declared ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, InventoryError, UserError
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.engines import USUAL, reads_gguf
from llamaherd.engines.flags.task import natural_task, splits_inputs
from llamaherd.gguf.header import Header
from llamaherd.inventory.exact_edits import text_with_entries
from llamaherd.inventory.file_writer import FileEdit, text_of
from llamaherd.inventory.schema import Model, Rig
from llamaherd.inventory.schema.rig import SHARE_PORT
from llamaherd.lock import Lock, LockedLocal, LockedModel, hub
from llamaherd.lock.hub import Quant, RepoQuants, quants_of
from llamaherd.lock.local_files import hash_file, name_in_lock, sized_file
from llamaherd.memory.instances import usable_bytes
from llamaherd.memory.suggestions import PlacementProposal, propose_placement
from llamaherd.pipeline.fleet_files import Survey, survey_fleet

_REPO = r"(?P<repo>[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*)"
_SOURCE = re.compile(
    rf"(?:(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/)?{_REPO}"
    r"(?::(?P<quant>[\w.-]+)|/(?:blob|resolve)/(?P<revision>[^/\s]+)/(?P<path>[^\s?#]+\.gguf)(?:[?#]\S*)?|/|/tree/main/?)?",
    re.ASCII,
)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_FIRST_PORT, _LAST_PORT = 8080, 65535
_MOST_TRIED = 3
"""The smaller quants whose headers are read for a model that does not fit."""


@dataclass(frozen=True)
class ModelSource:
    """What a user named: a repository, with a quant or a file of it; or a GGUF file of this machine."""

    repo: str = ""
    quant: str | None = None
    path: str | None = None
    revision: str = "main"
    file: Path | None = None


def parse_source(word: str) -> ModelSource:
    """Parse `hf.co/OWNER/NAME:QUANT`, `OWNER/NAME`, the URL of a file at the hub, or a path. Raise UserError."""
    if word.endswith(".gguf") and Path(word).is_file():
        return ModelSource(file=Path(word).resolve())
    found = _SOURCE.fullmatch(word.strip())
    if found is None:
        help_ = "write OWNER/NAME:QUANT of a repository of the hub, or the path of a GGUF file of this machine"
        what = "there is no file" if word.endswith(".gguf") else "this is no model:"
        raise UserError(f"{what} `{word[:120]}`", help_)
    return ModelSource(found["repo"], found["quant"], found["path"], found["revision"] or "main")


@dataclass(frozen=True)
class FoundModel:
    """A model with its header: the keys that declare it, its entry in the lock, and other quants of its repository."""

    name: str
    keys: Mapping[str, str]
    locked: LockedModel | LockedLocal
    shown: str
    others: RepoQuants | None = None

    @property
    def projectors(self) -> tuple[str, ...]:
        """The vision projectors of its repository."""
        return self.others.projectors if self.others else ()

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return self.locked.size

    def added_to(self, lock: Lock) -> Lock:
        """Return a lock with this model; an entry that is there stays. Raise UserError if it is of other content."""
        if isinstance(self.locked, LockedLocal):
            name = str(self.locked.file)
            known = lock.local_file(name)
            if known is None:
                return lock.model_copy(update={"files": (*lock.files, self.locked)})
            if known.sha256 != self.locked.sha256:
                help_ = "run `herd lock --upgrade` with the name of its model; if no rig uses the file, run `herd lock`"
                raise UserError(f"{name} has another sha256 than when it was locked", help_)
            return lock
        key = self.locked.key
        return lock if lock.find(*key) else lock.model_copy(update={"models": (*lock.models, self.locked)})


def find_model(source: ModelSource, folder: Path) -> FoundModel:
    """Return the model that a source names, with its header; `folder` is that of the lock. Raise UserError."""
    if source.file:
        return _local_model(source.file, folder)
    there = quants_of(source.repo, source.revision)
    if source.path:
        quant = next((each for each in there.each if each.files == source.path), Quant(source.path, source.path, 0))
    else:
        quant = there.named(source.quant)
    return find_quant(there, quant, source.revision)


def find_quant(there: RepoQuants, quant: Quant, revision: str = "main") -> FoundModel:
    """Return a quant of a repository, with its header. Raise HubError."""
    declared = Model.model_validate({"hf": there.repo, "revision": revision, **quant.keys})
    locked = hub.with_header(hub.resolve(there.repo, revision, declared.files))
    keys = {"hf": there.repo, **({"revision": revision} if revision != "main" else {}), **quant.keys}
    return FoundModel(_slug(there.repo.rpartition("/")[2]), keys, locked, f"{there.repo}, {quant.name}", there)


def _local_model(file: Path, folder: Path) -> FoundModel:
    """Return a file of this machine as the lock in a folder names it. Raise UserError."""
    locked = sized_file(file, name_in_lock(file, folder), hash_file(file))
    return FoundModel(_slug(file.stem), {"file": str(file)}, locked, file.name)


def _slug(text: str) -> str:
    """Return a valid name of an inventory from the name of a repository or a file."""
    text = re.sub(r"[-_.]?gguf$", "", text.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", text)[:40].strip("._-") or "model"


class UnwrittenError(InventoryError):
    """Errors of an inventory with changes that are not written: `texts` are the changed files."""

    def __init__(self, findings: Iterable[Finding], texts: Mapping[Path, str]) -> None:
        super().__init__(each for each in findings if each.severity == "error")
        self.texts = texts


@dataclass(frozen=True)
class InstanceOptions:
    """What the user sets: the instance's name, context, port and GPUs; an empty `on` is the CPU."""

    name: str | None = None
    context: int | None = None
    port: int | None = None
    on: tuple[str, ...] | None = None


@dataclass(frozen=True)
class NewInstance:
    """An instance that fits: its rig, its name, the change of the rig's file, and the inventory with it."""

    rig: str
    name: str
    edit: FileEdit
    lock: Lock
    survey: Survey
    placement: PlacementProposal

    @property
    def port(self) -> int:
        """Its port."""
        return self.survey.fleet.rigs[self.rig].instances[self.name].port

    def findings(self, before: Survey) -> tuple[Finding, ...]:
        """Return the findings that the inventory did not have before."""
        known = {(each.code, each.message) for each in before.findings}
        return tuple(each for each in self.survey.findings if (each.code, each.message) not in known)


def declare_instance(
    inventory: Path, lock: Lock, survey: Survey, rig: Rig, found: FoundModel, options: InstanceOptions
) -> NewInstance | None:
    """Return the rig's file with an instance of a model, placed where it fits; None if it does not fit.

    Writes nothing. Raise UserError, or InventoryError if the rig with it has mistakes.
    """
    file = survey.documents[rig.rig].file
    old, locked = text_of(file), found.added_to(lock)
    name, model = _instance_name(rig, found, options), _model_name(rig, found)
    _refuse_unknown_gpus(rig, options)
    text = old if model in rig.models else text_with_entries(old, file, "models", {model: found.keys})
    base = {"engine": _engine(rig), "model": model, **_task_keys(found.locked.header)}
    port = {"port": options.port or free_port(survey, rig)}

    def declared(keys: Mapping[str, Any]) -> tuple[str, Survey]:
        new = text_with_entries(text, file, "instances", {name: {**base, **keys, **port}})
        return new, survey_fleet(inventory, locked, texts={file: new})

    sketch, draft = declared({"context": base.get("batch", 4096)})
    if rig.rig not in draft.facts:
        raise UnwrittenError(draft.findings, {file: sketch})
    placement = propose_placement(
        draft.facts[rig.rig], name, context=options.context or base.get("batch"), on=options.on
    )
    if placement is None:
        return None
    keys = placement.keys
    if "on" not in keys and draft.fleet.rigs[rig.rig].instances[name].on:
        keys = {"on": [], **keys}
    new, whole = declared(keys)
    if not whole.ok:
        raise UnwrittenError(whole.findings, {file: new})
    return NewInstance(rig.rig, name, FileEdit(file, old, new), locked, whole, placement)


LONGEST_INPUT = 2048
"""Tokens of the longest input that a new server of embeddings or rerank takes, where it computes each at once."""


def _task_keys(header: Header | None) -> dict[str, Any]:
    """Return the keys of a model for embeddings or rerank: what it is for, and a batch for its longest input."""
    task = natural_task(header) if header else "chat"
    if header is None or task == "chat":
        return {}
    longest = min(header.number("context_length") or LONGEST_INPUT, LONGEST_INPUT)
    return {"serve": task, **({} if splits_inputs(header) else {"batch": longest, "ubatch": longest})}


def _instance_name(rig: Rig, found: FoundModel, options: InstanceOptions) -> str:
    """Return the name of the new instance. Raise UserError for a name that is invalid or taken."""
    taken = {*rig.instances, *rig.servers}
    if options.name is None:
        return free_name(found.name, taken)
    if not _NAME.fullmatch(options.name):
        raise UserError(
            f"`{options.name[:60]}` is no name of an instance",
            "use up to 40 lower-case letters, digits, `.`, `_` and `-`, beginning with a letter or digit",
        )
    if options.name in taken:
        raise UserError(f"{rig.rig} has an instance `{options.name}`", "take another --name")
    return options.name


def _model_name(rig: Rig, found: FoundModel) -> str:
    """Return the name of the same model of the rig, if it declares it; else a new name."""
    wanted = found.locked
    for name, model in rig.models.items():
        if isinstance(wanted, LockedModel) and wanted.key == (model.hf, model.revision, model.files, model.mmproj):
            return name
        if isinstance(wanted, LockedLocal) and found.keys.get("file") == str(model.file):
            return name
    return free_name(found.name, rig.models.keys())


def free_name(name: str, taken: set[str] | Any) -> str:
    """Return a name that is not taken: `gemma`, else `gemma-2`."""
    tried = (f"{name[:36].rstrip('._-')}-{number}" for number in range(2, 1000))
    return name if name not in taken else next(each for each in tried if each not in taken)


def _refuse_unknown_gpus(rig: Rig, options: InstanceOptions) -> None:
    gpus = rig.gpus.cards if rig.gpus else {}
    for name in options.on or ():
        if name not in gpus:
            near = nearest_name(name, gpus)
            known = f"it has {', '.join(f'`{each}`' for each in gpus)}" if gpus else "it has none; use `--on cpu`"
            raise UserError(f"{rig.rig} has no GPU `{name[:60]}`", f"did you mean `{near}`?" if near else known)


def _engine(rig: Rig) -> str:
    """Return the engine of most instances, of those that serve GGUF files. Raise UserError if there is none."""
    fits = [name for name, engine in rig.engines.items() if reads_gguf(engine)]
    if not fits:
        help_ = f"declare one, such as `engines: {{main: {{kind: {USUAL}, ref: b11434}}}}`"
        raise UserError(f"{rig.rig} has no engine that serves GGUF files", help_)
    used = [each.engine for each in rig.instances.values()]
    return max(fits, key=lambda name: (used.count(name), rig.engines[name].kind == USUAL))


def free_port(survey: Survey, rig: Rig, further: Collection[int] = ()) -> int:
    """Return the first free port from the lowest declared port on; `further` ports are taken, too."""
    ports = {*further, *(each.port for each in rig.instances.values())}
    first = min(ports, default=_FIRST_PORT)
    gateway = survey.own.gateway if survey.own else None
    taken = {*ports, SHARE_PORT, rig.store.share.port}
    if gateway:
        taken |= {gateway.port, *({gateway.chat.port} if gateway.chat else ())}
    return next(port for port in range(max(first, 1024), _LAST_PORT) if port not in taken)


def smaller_quants(
    inventory: Path, lock: Lock, survey: Survey, rig: Rig, found: FoundModel, options: InstanceOptions
) -> Iterator[str]:
    """Yield the largest smaller quant of the same repository that fits. Reads the headers of a few quants at most."""
    if found.others is None:
        return
    gpus = rig.gpus.cards if rig.gpus else {}
    most = sum(usable_bytes(rig, gpu) for gpu in gpus) if gpus and options.on != () else rig.host.ram
    tried = [each for each in found.others.smaller(found.size) if each.size < most]
    for quant in tried[:_MOST_TRIED]:
        with suppress(UserError, InventoryError):
            other = find_quant(found.others, quant, _revision(found))
            if declare_instance(inventory, lock, survey, rig, other, options):
                yield quant.name
                return


def _revision(found: FoundModel) -> str:
    return found.locked.revision if isinstance(found.locked, LockedModel) else "main"


def other_options(
    inventory: Path, lock: Lock, survey: Survey, rig: Rig, found: FoundModel, options: InstanceOptions
) -> Iterator[str]:
    """Yield the options with which the same model fits: a smaller context, other GPUs, the CPU."""
    attempts = {}
    if options.context:
        attempts["a smaller context"] = replace(options, context=None)
    if options.on:
        attempts["other GPUs"] = replace(options, on=None)
    if options.on != ():
        attempts["the CPU, which is slower"] = replace(options, on=(), context=None)
    for how, changed in attempts.items():
        if made := declare_instance(inventory, lock, survey, rig, found, changed):
            context = made.placement.context
            flags = [f"--context {context}"] if options.context and context != options.context else []
            flags += ["--on cpu"] if changed.on == () else []
            yield f"{how}: {' '.join(flags) or 'leave out --on'}"
