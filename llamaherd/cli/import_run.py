"""The run of `herd import`: read a file, declare its servers on a rig, and list what differs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NoReturn

import click
from pydantic import ValidationError

from llamaherd.checks.references import ALIKE, CANNOT_SWAP, CONTRADICTS_GROUP
from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, fail, print_findings, read_or_exit
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.file_edits import confirm_write, print_edit, resolved_lock_or_exit, write_edits
from llamaherd.cli.fleet_folder import FirstRig, inspected_host
from llamaherd.cli.import_file import ImportFile, read_import
from llamaherd.diagnostics.findings import HubError, InventoryError, UserError
from llamaherd.engines import flags_of
from llamaherd.engines.flags.keys import Keys, slug
from llamaherd.engines.llama_cpp import ROUTERS_OWN
from llamaherd.inventory.exact_edits import text_with_comments, text_with_entries, text_with_value
from llamaherd.inventory.file_writer import FileEdit, text_of
from llamaherd.inventory.schema import Engine, Instance, Model, Rig
from llamaherd.inventory.schema.key_flags import LLAMA
from llamaherd.inventory.schema.software import PUBLISHED
from llamaherd.lock import Lock, LockedModel, hub
from llamaherd.memory.facts import RigFacts
from llamaherd.memory.suggestions import largest_context, propose_placement
from llamaherd.pipeline.discovery import SUFFIXES
from llamaherd.pipeline.fleet_files import Survey, choose_rigs, survey_fleet
from llamaherd.pipeline.load import inventory_folder, inventory_path, read_lock
from llamaherd.pipeline.new_instance import (
    FoundModel,
    ModelSource,
    UnwrittenError,
    find_model,
    free_name,
    free_port,
    parse_source,
)
from llamaherd.recipes.containers import path_on_host
from llamaherd.recipes.importing import PLACING, differences, keys_on_rig, rendered_server, without_words
from llamaherd.recipes.suggestions import Offer
from llamaherd.scaffold import fleet_files, rig_yaml, write_files

_UNKNOWN_CONTEXT = 4096
"""The context of a model whose header cannot be read, where the file names none."""
_NEW_ENGINES: Mapping[str, tuple[str, Keys]] = {
    "llama.cpp": ("main", {"kind": "llama.cpp", "ref": "b11434"}),
    "ik_llama.cpp": ("ik", {"kind": "ik_llama.cpp", "ref": "main"}),
    "vllm": ("vllm", {"kind": "vllm", "image": PUBLISHED["vllm"]}),
}
"""The name and the keys of an engine of each kind that is added to a rig without one."""
_LLAMA_SWAP = "swap"
"""A name that is not given: its unit would replace `llama-swap.service`, which usually runs llama-swap itself."""
_MOST_SHOWN = 8
_CANNOT_SWAP = frozenset((CONTRADICTS_GROUP.code, CANNOT_SWAP.code))
"""The codes of instances that cannot be in one group."""


@dataclass(frozen=True)
class ImportOptions:
    """The options of `herd import`."""

    inventory: Path | None
    file: Path
    rig: str | None
    host: str | None
    models: tuple[str, ...]
    yes: bool
    dry_run: bool
    as_json: bool

    @property
    def from_stdin(self) -> bool:
        """Return whether the text is that of standard input."""
        return str(self.file) == "-"

    @property
    def shown(self) -> str:
        """The file in messages."""
        return "standard input" if self.from_stdin else str(self.file)


@dataclass(frozen=True)
class TargetRig:
    """The rig that gets the instances: its file and text as they are, and what the inventory is with them."""

    name: str
    file: Path
    text: str
    survey: Survey
    new: bool

    @property
    def rig(self) -> Rig:
        """The rig."""
        return self.survey.fleet.rigs[self.name]


@dataclass
class Imported:
    """An instance to write: its keys, the lines of comment above it, and the server that it is from."""

    name: str
    keys: Keys
    offer: Offer
    notes: list[str] = field(default_factory=list)
    comments: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    """Why arguments without a key are left out, by the arguments."""

    @property
    def places(self) -> bool:
        """Return whether the file sets where the model goes, so that no other placement is searched for."""
        return any(key in self.keys for key in PLACING) or bool({"-ot", "--override-tensor"} & {*self._words})

    @property
    def _words(self) -> list[str]:
        return list(self.keys.get("extra_args", ()))


def run_import(run: ImportOptions) -> None:
    """Declare the servers of a file. End the program if that cannot be done, or if the user does not confirm."""
    if run.as_json and not (run.yes or run.dry_run):
        raise click.UsageError("--json needs --yes, or --dry-run to write nothing")
    source = read_import(run.file)
    try:
        path = _inventory(run)
        lock = read_or_exit(lambda: read_lock(path))
        target = _target(run, path, lock)
        done = _Import(run, path, lock, target, source, old=lock)
        _write(done, *done.declared())
    except UnwrittenError as error:
        echo("the rig with the new instances has mistakes; nothing was written", err=True)
        print_findings(error.findings, texts=error.texts)
        sys.exit(FAILED)
    except InventoryError as error:
        print_findings(error.findings)
        sys.exit(UNUSABLE)
    except UserError as error:
        fail(error, FAILED)


def _inventory(run: ImportOptions) -> Path:
    """Return the inventory; with --from, the folder that gets the new rig. Raise UserError."""
    path = inventory_path(run.inventory)
    if run.host is None:
        return path
    folder = path.parent if path.suffix in SUFFIXES else path
    if folder.is_dir():
        return folder
    if run.inventory is not None:
        raise UserError(f"there is no folder {folder}", f"create it: `mkdir -p {shlex.quote(str(folder))}`")
    if any(each.resolve() != run.file.resolve() for each in Path().iterdir()):
        help_ = "run the command in a fleet folder, or name an empty folder: `mkdir fleet; herd -i fleet import FILE`"
        raise UserError("the current folder has other files, and is no fleet folder", help_)
    return Path()


def _target(run: ImportOptions, path: Path, lock: Lock) -> TargetRig:
    """Return the rig of the inventory, or a new one of an inspected host. Raise UserError or InventoryError."""
    if run.host is not None:
        return _new_rig(run, run.host, path, lock)
    survey = survey_fleet(path, lock)
    rigs = survey.fleet.rigs
    if run.rig and run.rig not in rigs and survey.ok:
        help_ = f"name one of {', '.join(rigs)}; or add `--from HOST`, which inspects a host and writes a new rig"
        raise UserError(f"there is no rig `{run.rig}`", help_)
    if not survey.ok:
        raise InventoryError(
            [
                replace(each, help=f"{each.help}; or `herd import FILE --from HOST`, which inspects a host")
                if not rigs
                else each
                for each in survey.findings
            ]
        )
    if run.rig is None and len(rigs) > 1:
        raise UserError(f"the inventory has {len(rigs)} rigs", f"name one with `--rig`: {', '.join(rigs)}")
    (name,) = choose_rigs(survey.fleet, (run.rig,) if run.rig else (), path).rigs
    file = survey.documents[name].file
    return TargetRig(name, file, text_of(file), survey, new=False)


def _new_rig(run: ImportOptions, host: str, folder: Path, lock: Lock) -> TargetRig:
    """Return a rig with the hardware of a host, and without instances. Raise UserError or InventoryError."""
    name, connect, found = inspected_host(FirstRig(host, None, None, run.rig, None))
    file = folder / f"{name}.yaml"
    if file.exists():
        help_ = f"leave out --from to add to it: `--rig {name}`; or give the new rig another name by --rig"
        raise UserError(f"there is a rig in {file} already", help_)
    text = str(rig_yaml(found, name, connect, proposal=None))
    survey = survey_fleet(folder, lock, texts={file: text})
    if name not in survey.fleet.rigs:
        raise UnwrittenError(survey.findings, {file: text})
    return TargetRig(name, file, text, survey, new=True)


@dataclass
class _Import:
    """One import: the source, the rig, and what is found and added on the way. `lock` gets the models."""

    options: ImportOptions
    path: Path
    lock: Lock
    target: TargetRig
    source: ImportFile
    models: dict[str, Keys] = field(default_factory=dict)
    engines: dict[str, Keys] = field(default_factory=dict)
    imported: list[Imported] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    """Why the header of a model is unknown, by the model's name."""
    projectors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The vision projectors in the repository of each model."""
    served: dict[str, str] = field(default_factory=dict)
    """The names of models by those of offers."""
    drafts: dict[str, str] = field(default_factory=dict)
    """The same of the models that draft."""
    old: Lock = field(default_factory=Lock)
    """The lock as it was read."""

    def declared(self) -> tuple[str, Survey]:
        """Return the text of the rig's file with models and instances, and the inventory with it.

        Raise UserError if a model has no source, or InventoryError if the rig with the instances has mistakes.
        """
        left = self._leave_out()
        self._find_models()
        self._place()
        for each in self.imported[:1]:
            each.notes += left
        self._group()
        draft = self._survey(self._text())
        if self._drop_refused(draft):
            draft = self._survey(self._text())
        unable = [each for each in draft.findings if each.code in _CANNOT_SWAP and each.severity == "error"]
        if unable:
            self._ungroup(unable[0].message)
            draft = self._survey(self._text())
        self._complete(draft.facts[self.target.name])
        final = self._survey(self._text())
        for each in self.imported:
            each.comments = tuple(self._comments(each, final.facts[self.target.name]))
        text = self._text()
        comments = {each.name: each.comments for each in self.imported}
        text = text_with_comments(text, self.target.file, "instances", comments)
        whole = self._survey(text)
        if not whole.ok:
            raise UnwrittenError(whole.findings, {self.target.file: text})
        return text, whole

    def _drop_refused(self, draft: Survey) -> bool:
        """Leave out the arguments without a key that a check of the rig refuses. Return whether there are any."""
        document, facts = draft.documents[self.target.name], draft.facts[self.target.name]
        errors = {each.place: each.message for each in draft.findings if each.severity == "error"}
        dropped = False
        for each in self.imported:
            words, flags = each.keys.get("extra_args", []), facts.instances[each.name].flags
            places = [document.word(("instances", each.name, "extra_args"), words, at) for at in range(len(words))]
            wrong = frozenset(at for at, place in enumerate(places) if place in errors)
            if flags is None or not wrong:
                continue
            message = errors[places[min(wrong)]]
            each.keys["extra_args"], options = without_words(words, flags, wrong)
            each.refused |= {option: message.removeprefix(f"`{option}`: ") for option in options}
            dropped = True
        return dropped

    def _survey(self, text: str) -> Survey:
        """Return the inventory with a text of the rig's file. Raise UnwrittenError if the rig is unreadable then."""
        texts = {self.target.file: text}
        survey = survey_fleet(self.path, self.lock, texts=texts)
        if self.target.name not in survey.facts:
            raise UnwrittenError(survey.findings, texts)
        return survey

    def _text(self) -> str:
        """Return the text of the rig's file with all that is added. Raise UserError."""
        text, file, rig = self.target.text, self.target.file, self.target.rig
        models = {name: keys for name, keys in self.models.items() if name not in rig.models}
        instances: dict[str, Keys] = {}
        for each in self.imported:
            whole: Keys = {"context": _UNKNOWN_CONTEXT, **each.keys}
            given = {key: value for key, value in whole.items() if value not in (None, [])}
            instances[each.name] = {key: given[key] for key in Instance.model_fields if key in given}
        for section, entries in (("models", models), ("engines", self.engines), ("instances", instances)):
            text = text_with_entries(text, file, section, entries)
        used = {each.keys["engine"] for each in self.imported}
        unused = [name for name in rig.engines if self.target.new and used and name not in used]
        for name in unused:
            text = text_with_value(text, file, ("engines", name), None)
        return text

    def _leave_out(self) -> list[str]:
        """Leave out servers of which one runs at a time, but the first, if no group can hold them.

        Return a line about them.
        """
        kept: list[Offer] = []
        left: list[str] = []
        for offer in self.source.offers:
            before = [each.server for each in kept if each.server.kind != LLAMA and each.server.group]
            swapped = offer.server.kind != LLAMA and offer.server.group
            same = any(each.group == offer.server.group or each.alone or offer.server.alone for each in before)
            if swapped and same:
                left.append(offer.name)
            else:
                kept.append(offer)
        self.source = replace(self.source, offers=tuple(kept))
        names = ", ".join(f"`{name}`" for name in left)
        return [f"{names}: not imported, as one of these runs at a time, which only llama.cpp can"] if left else []

    # --- models ---

    def _find_models(self) -> None:
        """Find the source and the header of each model. Raise UserError if one has no source."""
        wanted = self._wanted()
        given = dict(_named_model(word, wanted) for word in self.options.models)
        missing = {name: path for name, (source, path) in wanted.items() if not source and name not in given}
        if missing:
            _refuse_unknown(self.options.shown, missing, only=len(wanted) == 1)
        for name, (source, _) in wanted.items():
            self._find(name, given.get(name, source))

    def _wanted(self) -> dict[str, tuple[str, str]]:
        """Return the source of each model by its name, empty for an unknown one, and its path in the file."""
        wanted = {each.name: (each.source, each.source or each.name) for each in self.source.models}
        for offer in self.source.offers:
            self.served[offer.name] = self._want(wanted, offer, offer.keys["model"], offer.source)
            if drafting := _drafting(offer.keys):
                self.drafts[offer.name] = self._want(wanted, offer, drafting, offer.draft)
        return wanted

    def _want(self, wanted: dict[str, tuple[str, str]], offer: Offer, name: str, path: str) -> str:
        """Add a model of an offer, and return its name: another one if the name is that of another path."""
        name = free_name(name, {each for each, (_, other) in wanted.items() if other != path})
        wanted.setdefault(name, (self._source(offer, path), path))
        return name

    def _source(self, offer: Offer, path: str) -> str:
        """Return the repository of an offer's model, or the path of a file that is here; empty for neither."""
        if offer.model and path == offer.source:
            return path
        folder = self.options.file.absolute().parent
        try:
            on_host = path_on_host(path, offer.server.binds, folder)
            here = [each for each in (on_host, folder / Path(path).expanduser()) if each and each.is_file()]
        except (OSError, RuntimeError, ValueError):  # no file can have such a name
            return ""
        return str(here[0]) if path and here else ""

    def _find(self, name: str, source: str) -> None:
        """Note the keys of a model, and its header in the lock. Raise UserError."""
        folder, whole = inventory_folder(self.path).resolve(), self._is_whole(name)
        path = Path(source)
        if self.source.models and path.is_absolute() and path.is_file():
            self.models[name] = {"file": source}  # `herd lock` hashes it
            return
        known = ModelSource(file=path.resolve()) if path.is_absolute() and path.is_file() else parse_source(source)
        try:
            if whole:
                locked = hub.resolve(known.repo, known.revision, "*", whole=True)
                found = FoundModel(name, {"hf": known.repo, "files": "*"}, locked, known.repo)
            else:
                found = self._with_projector(name, _found(known, folder))
        except HubError as error:
            if not self.options.dry_run:
                raise
            keys = {"quant": known.quant} if known.quant and not whole else {"files": "*"} if whole else {}
            self.models[name], self.unread[name] = {"hf": known.repo, **keys}, error.message
            return
        self.models[name], self.projectors[name] = dict(found.keys), found.projectors
        self.lock = found.added_to(self.lock)

    def _with_projector(self, name: str, found: FoundModel) -> FoundModel:
        """Return a model with the vision projector that the file names, if its repository has that."""
        offers = (each for each in self.source.offers if self.served[each.name] == name)
        named = {PurePosixPath(str(word)).name for each in offers if (word := each.server.value("--mmproj", "-mm"))}
        same = next((each for each in found.projectors if PurePosixPath(each).name in named), None)
        if same is None or not isinstance(found.locked, LockedModel):
            return found
        return replace(found, keys={**found.keys, "mmproj": same}, locked=hub.with_projector(found.locked, same))

    def _is_whole(self, name: str) -> bool:
        """Return whether the engine of a model reads all files of its repository."""
        return any(self.served[each.name] == name and each.server.kind == "vllm" for each in self.source.offers)

    def _named_in_rig(self) -> dict[str, str]:
        """Return the names that the models have on the rig: one that declares the same model stays.

        Clients of llama-swap or a router request a model by its name there, so another declared name is not used.
        """
        names: dict[str, str] = {}
        requested = {self.served[each.name] for each in self.source.offers if each.server.served_as}
        for name, keys in self.models.items():
            folder = {"folder": self.target.file.resolve().parent}
            try:
                model = Model.model_validate(keys, context=folder)
            except ValidationError as error:
                why = error.errors(include_url=False)[0]["msg"]
                raise UserError(
                    f"`{name}` cannot be a model of a rig: {why}", "name another source by --model"
                ) from None
            declared = [each for each, other in self.target.rig.models.items() if _is_same(model, other)]
            same = next((each for each in declared if each == name or name not in requested), None)
            names[name] = same or free_name(name, {*self.target.rig.models, *names.values()})
        return names

    # --- instances ---

    def _place(self) -> None:
        """Declare the instances on the rig as far as the file decides on them."""
        rig, names = self.target.rig, self._named_in_rig()
        cards = rig.gpus.cards if rig.gpus else {}
        taken, ports = {*rig.instances, *rig.servers, _LLAMA_SWAP}, {each.port for each in rig.instances.values()}
        for offer in self.source.offers:
            keys = offer.keys
            name = free_name(offer.name, taken)
            wanted = None if offer.server.served_as else keys.get("port")
            free = isinstance(wanted, int) and 1024 <= wanted <= 65535 and wanted not in ports
            port = int(str(wanted)) if free else free_port(self.target.survey, rig, ports)
            own: Keys = {"engine": self._engine(offer), "model": names[self.served[offer.name]], "port": port}
            if offer.name in self.drafts:
                own["draft"] = keys["draft"] | {"model": names[self.drafts[offer.name]]}
            engine = self._engine_of(own["engine"])
            instance = Imported(name, keys_on_rig(offer, cards, flags_of(engine), own), offer)
            if engine.image is None and instance.keys.pop("backend", None):
                instance.notes.append(
                    f"it is a unit of systemd, not a container: engine `{own['engine']}` has no `image`"
                )
            self.imported.append(instance)
            taken.add(name)
            ports.add(port)
        self.models = {names[name]: keys for name, keys in self.models.items()}
        self.unread = {names[name]: why for name, why in self.unread.items()}
        self.projectors = {names[name]: each for name, each in self.projectors.items()}

    def _engine(self, offer: Offer) -> str:
        """Return the engine of the rig for a server: the most used one of its kind. Add one if there is none."""
        rig, kind = self.target.rig, offer.server.kind
        contained = offer.keys.get("backend") == "compose"
        there = [name for name, each in rig.engines.items() if each.kind == kind and (contained or not each.image)]
        if there:
            used = [each.engine for each in rig.instances.values()]
            return max(there, key=lambda name: (contained and rig.engines[name].image is not None, used.count(name)))
        added = next((name for name, keys in self.engines.items() if keys["kind"] == kind), None)
        if added is None:
            usual, keys = _NEW_ENGINES[kind]
            added = free_name(usual, rig.engines.keys())
            self.engines[added] = keys
        return added

    def _group(self) -> None:
        """Put servers of which one runs at a time into groups, where they are alike."""
        alike: dict[tuple[str, ...], list[Imported]] = {}
        for each in self.imported:
            if each.offer.server.group:
                same = (each.offer.server.group, *(repr(each.keys.get(key)) for key in ALIKE if key != "port"))
                alike.setdefault(same, []).append(each)
        names = [_LLAMA_SWAP, *(each.name for each in self.imported)]
        for (group, *_), members in alike.items():
            if len(members) > 1:
                name = free_name(slug(group), {*names, *self.target.rig.instances, *self.target.rig.servers})
                names.append(name)
                for each in members:
                    each.keys |= {"group": name, "port": members[0].keys["port"]}
                    self._leave_to_router(each)
            elif len(self.imported) > 1:
                members[0].notes.append("it runs next to the others: instances of a group are alike in GPUs and more")

    def _leave_to_router(self, each: Imported) -> None:
        """Leave out the arguments that a router has for all of its models, and drops for one."""
        flags, words = flags_of(self._engine_of(each.keys["engine"])), each.keys.get("extra_args", [])
        wrong = frozenset(at for at, word in enumerate(words) if word in ROUTERS_OWN)
        if flags and wrong:
            each.keys["extra_args"], options = without_words(words, flags, wrong)
            each.refused |= dict.fromkeys(options, "the router of a group has it for all models")

    def _engine_of(self, name: str) -> Engine:
        return self.target.rig.engines.get(name) or Engine.model_validate(self.engines[name])

    def _ungroup(self, why: str) -> None:
        """Declare the members of groups as servers of their own."""
        ports = {each.keys["port"] for each in self.imported}
        for each in self.imported:
            if each.keys.pop("group", None):
                port = free_port(self.target.survey, self.target.rig, ports)
                each.keys["port"] = port
                ports.add(port)
                each.notes.append(f"it runs next to the others: {why}")

    def _complete(self, facts: RigFacts) -> None:
        """Add the context and the placement that the file leaves to the engine."""
        for each in self.imported:
            header, moved = facts.instances[each.name].header, each.keys.get("experts_on_cpu")
            if header and isinstance(moved, int) and moved > len(header.expert_layers) > 0:
                each.keys["experts_on_cpu"] = "all"  # engines take any larger number so
            sized, on = facts.sized.get(each.name), tuple(each.keys.get("on", ()))
            given = each.keys.get("context")
            searched = sized and not sized.fit.fits and not each.places
            if searched and (proposal := propose_placement(facts, each.name, context=given, on=on)):
                each.keys |= proposal.keys
            if "context" not in each.keys and (context := largest_context(facts, each.name)):
                each.keys["context"] = context

    # --- comments ---

    def _comments(self, each: Imported, facts: RigFacts) -> Iterator[str]:
        """Yield where an instance is from, and each difference."""
        options = self.options
        yield f"from {options.shown if options.from_stdin else options.file.name}:{each.offer.line}"
        ours = rendered_server(facts, each.name)
        lines = [*differences(each.offer, ours, each.refused)] if ours else []
        for line in [*lines, *each.notes, *self._about_projector(each)]:
            yield f"differs: {line}"
        if ours is None:
            yield "not compared: the flags of this engine's version are unknown"
        elif ours.header is None and each.offer.server.kind != "vllm":
            why = self.unread.get(each.keys["model"], "the model has none")
            yield f"not compared: memory, and the context that fits, as there is no header of the model: {why}"

    def _about_projector(self, each: Imported) -> Iterator[str]:
        """Yield the vision projector that llama.cpp would load by itself."""
        there = self.projectors.get(each.keys["model"])
        given = each.offer.known.arguments
        if there and each.offer.model and not {"--no-mmproj", "--no-mmproj-auto", "--mmproj", "-mm"} & {*given}:
            yield f"no vision projector is loaded: -hf loads one; add `mmproj: {there[0]}` to the model"


def _drafting(keys: Keys) -> str:
    """Return the name of the model that drafts; empty if there is none."""
    draft = keys.get("draft")
    return str(draft.get("model", "")) if isinstance(draft, dict) else ""


def _is_same(one: Model, other: Model) -> bool:
    """Return whether two declarations name the same files."""
    return (one.hf, one.revision, one.files, one.mmproj, one.file) == (
        *(other.hf, other.revision, other.files, other.mmproj, other.file),
    )


def _found(source: ModelSource, folder: Path) -> FoundModel:
    """Return a model with its header. Without a quant it is Q4_K_M, as engines take it. Raise UserError."""
    if source.file or source.quant or source.path:
        return find_model(source, folder)
    try:
        return find_model(replace(source, quant="Q4_K_M"), folder)
    except HubError:
        return find_model(source, folder)


def _named_model(word: str, wanted: Mapping[str, object]) -> tuple[str, str]:
    """Parse `NAME=MODEL`, or `MODEL` for the only model. Raise UserError."""
    name, equals, source = word.partition("=")
    if equals and name in wanted:
        return name, source
    if len(wanted) == 1:
        return next(iter(wanted)), word
    known = ", ".join(f"`{each}`" for each in wanted)
    raise UserError(f"`--model {word[:120]}` names none of the models", f"write NAME=MODEL; the names are {known}")


def _refuse_unknown(source: str, missing: Mapping[str, str], *, only: bool) -> NoReturn:
    """Raise UserError for models of which only a path is known."""
    shown = ", ".join(f"`{path or name}`" for name, path in islice(missing.items(), _MOST_SHOWN))
    more = f" and {len(missing) - _MOST_SHOWN} more" if len(missing) > _MOST_SHOWN else ""
    prefixes = [""] if only else [f"{name}=" for name in islice(missing, _MOST_SHOWN)]
    options = " ".join(f"--model {prefix}OWNER/NAME:QUANT" for prefix in prefixes)
    help_ = f"add `{options}`, a repository of the hub"
    raise UserError(f"{source} names {shown}{more}, and no such file is here", help_)


def _write(done: _Import, text: str, whole: Survey) -> None:
    """Show the new lines, confirm, and write them and the lock."""
    run, target = done.options, done.target
    edit = FileEdit(target.file, "" if target.new else target.text, text)
    known = {(each.code, each.message) for each in target.survey.findings}
    new = [each for each in whole.findings if (each.code, each.message) not in known]
    if not run.as_json:
        _print_read(done)
        print_edit(edit)
        print_findings(new, texts={edit.file: edit.new})
    if not run.dry_run:
        confirm_write(run.yes, "Write these lines?")
        lock = resolved_lock_or_exit(done.path, whole, done.lock)
        if target.new:
            written = write_files(done.path, fleet_files({target.name: text}))
            if any(each.file == target.file and each.what == "kept" for each in written):
                raise UserError(f"{target.file} was written by another program meanwhile", "run the same command again")
        write_edits(done.path, [] if target.new else [edit], done.old, lock)
    if run.as_json:
        _print_json(done, edit)
    elif not run.dry_run:
        inventory = f" -i {run.inventory}" if run.inventory else ""
        echo(f"{edit.file} and the lock are written")
        echo(f"next: herd{inventory} up {target.name}" if done.imported else f"next: herd{inventory} add MODEL")


def _print_read(done: _Import) -> None:
    """Print the servers or models, and how many mistakes the file has."""
    for each in done.imported:
        where = ", ".join(each.keys.get("on", ())) or "the CPU"
        different = sum(line.startswith("differs:") for line in each.comments)
        what = f"on {where}, port {each.keys['port']}, {counted(different, 'difference')}"
        echo(f"{done.target.name}/{each.name}: {what}")
    if not done.imported:
        echo(f"{done.target.name}: {counted(len(done.models), 'model')}")
    for line in done.source.routers:
        echo(f"line {line} starts a router: import its preset file for the models that it names", err=True)
    if errors := sum(each.severity == "error" for each in done.source.findings):
        check = "" if done.options.from_stdin else f": run `herd check {shlex.quote(str(done.options.file))}`"
        echo(f"{done.options.shown} has {counted(errors, 'error')}{check}", err=True)


def _print_json(done: _Import, edit: FileEdit) -> None:
    row = {
        "rig": done.target.name,
        "file": str(edit.file),
        "instances": [
            {
                "instance": each.name,
                "model": each.keys["model"],
                "on": list(each.keys.get("on", ())),
                "port": each.keys["port"],
                "group": each.keys.get("group"),
                "comments": list(each.comments),
            }
            for each in done.imported
        ],
        "models": list(done.models),
        "lines": list(edit.lines()),
        "written": not done.options.dry_run,
    }
    print_envelope(Envelope(True, [row]))
