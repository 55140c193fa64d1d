"""The instance that is tuned: its candidates as planned units, and the units that judge their quality."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.engines import TRAITS, flags_of
from llamaherd.engines.divergence import (
    BASE,
    Pass,
    Reading,
    compared_arguments,
    kept_arguments,
    words_as_served,
    words_with_cache,
)
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.settings import Setting, with_settings
from llamaherd.inventory.yaml_file import Document
from llamaherd.layout import ARMS_TEXT
from llamaherd.measure.client.suite import suite
from llamaherd.measure.trials.divergence import LOGITS, Reader, UnitHost, divergence_text
from llamaherd.measure.trials.pair import arm_instance, unit_of
from llamaherd.measure.trials.units import Arm, arms_port, run_unit
from llamaherd.measure.tune.candidate import Candidate, settings_of, with_keys
from llamaherd.measure.tune.journal import Fingerprint, fingerprint_of
from llamaherd.measure.tune.quality import MODEL, Judged, Limits, Precision
from llamaherd.measure.tune.space import SearchedInstance, Space, space_of
from llamaherd.memory.divergence import readings
from llamaherd.pipeline.fleet_files import local_headers
from llamaherd.pipeline.load import plans, read_lock
from llamaherd.plan import InstancePlan, ModelPlan, Plan
from llamaherd.plan.plan import instance_name_error, instance_names
from llamaherd.role.role import Role

UnitOf = Callable[[Candidate, Precision, Reading, int], str]
"""The unit that reads the text twice: exactly, and as a candidate does."""


@dataclass(frozen=True)
class QualityJudge:
    """The judge of a search. `readings` are ways in which the text could be read, the best one first."""

    host: UnitHost
    unit_of: UnitOf
    readings: Callable[[Candidate, Precision], Iterable[Reading]]

    def judged(self, candidate: Candidate, precision: Precision, seconds: float) -> Judged:
        """What a candidate's precision costs, within so many seconds. Raises UserError where the host is gone: then
        nothing is known of it."""

        def unit(reading: Reading, longest: int) -> str:
            return self.unit_of(candidate, precision, reading, longest)

        found = Reader(self.host, unit, self.readings(candidate, precision)).compared(seconds)
        return Judged.model_validate({**dict(found), **asdict(precision)})


@dataclass(frozen=True)
class TuneTarget:
    """An instance with all that may be changed about it. `start` are its keys as they are declared.

    `server` is the unit that has it now, and is stopped meanwhile: of one of a group, the group's. `watts` are power
    limits that are tried in the end.
    """

    inventory: Path
    roles: tuple[Role, ...]
    known: SearchedInstance
    plan: Plan
    server: InstancePlan
    declared: InstancePlan
    space: Space
    start: Candidate
    watts: tuple[int, ...] = ()
    header: Header | None = None

    @property
    def rig(self) -> Rig:
        """The rig as it is declared."""
        return self.known.rig

    @property
    def limits(self) -> Limits | None:
        """What coarser types of the cache and other weights may cost; None where none is tried."""
        quality = self.known.instance.quality
        return Limits(kld=quality.kld, same_top=quality.same_top) if quality else None

    @property
    def text(self) -> str:
        """What candidates are judged on: our own text, long enough; empty where none is judged."""
        return divergence_text() if self.limits else ""

    @property
    def context(self) -> int:
        """What each request has of it."""
        return self.declared.context // max(1, self.declared.endpoint.streams)

    @property
    def identity(self) -> str:
        """The hash of what a reading hangs on: what serves and how, on which GPUs and host, and what is asked."""
        space = [(axis.key, axis.values) for axis in self.space.axes]
        machine = [self.rig.host.model_dump_json(), self.rig.gpus.model_dump_json() if self.rig.gpus else None]
        limits = [self.limits.model_dump()] if self.limits else []
        watts = [self.watts] if self.watts else []
        others = [_files(self.others)] if self.others else []
        said = [self.declared.build, self._files, self.declared.spec, suite().sha256, space, machine, *limits, *watts]
        return _hash([*said, *others])

    @property
    def others(self) -> list[ModelPlan]:
        """The models that may take the place of its own."""
        return [each for each in self.plan.models if each.name in self.known.instance.tried_models]

    @property
    def _files(self) -> list[str]:
        """What tells its model's files from others, and those of what drafts for it."""
        folders = {self.declared.model_folder, self.declared.draft_folder}
        return _files(each for each in self.plan.models if each.folder in folders)

    @property
    def kind(self) -> str:
        """The hash of what it has in common with twins: engine, model, GPUs, cores and context, wherever they are."""
        rig, instance = self.rig, self.rig.instances[self.declared.name]
        cards = rig.gpus.cards if rig.gpus else {}
        gpus = [(cards[name].model, cards[name].memory_bytes) for name in instance.on]
        engine = rig.engines[instance.engine].kind
        return _hash([engine, self._files, gpus, rig.host.cpu.cores, instance.context, instance.parallel])

    @property
    def likeness(self) -> Fingerprint:
        """The same in words, for those who know only a part of it."""
        return fingerprint_of(self.rig, self.declared.name, self.header)

    def hinted(self, other: Candidate) -> Candidate:
        """What another search has found, as far as it may be tried here."""
        values = {axis.key: axis.values for axis in self.space.axes}
        return self.start.with_keys({key: value for key, value in other.keys if value in values.get(key, ())})

    def arm(self, candidate: Candidate, load_seconds: int | None) -> Arm:
        """A candidate as a unit of its own, which may take so long to load. Raises UserError and InventoryError."""
        rig, name = self.rig.rig, self.declared.name
        port = arms_port(self.plan, name)
        settings = settings_of(candidate, self.start)
        if load_seconds is not None:
            settings = (*settings, Setting(("load_timeout",), load_seconds, f"load_timeout={load_seconds}"))

        def edit(whole: Document) -> Document:
            return with_settings(whole, name, settings) if whole.data.get("rig") == rig else whole

        plan = plans(self.inventory, self.roles, (rig,), edit=edit)[rig][1]
        return Arm("C", f"{rig}/{name}", arm_instance(plan, rig, name, port, load_seconds))

    def readings(self, candidate: Candidate, precision: Precision) -> Sequence[Reading]:
        """Ways in which a text could be read to judge a candidate, the best one first: those of the weights with less
        room, where others are judged."""
        known, exact = self.known, self._exact(candidate, precision)
        if exact is None:
            return []
        instances = [with_keys(known.instance, each) for each in dict.fromkeys((candidate, exact))]
        ways = [list(readings(known.facts, known.name, each)) for each in instances]
        return min(ways, key=lambda each: each[0].context if each else 0)

    def _exact(self, candidate: Candidate, precision: Precision) -> Candidate | None:
        """What a candidate is judged beside: itself, or the finest weights, as much of those on the GPUs as fits."""
        if not precision.model:
            return candidate
        return self.space.pack(candidate.with_keys({MODEL: precision.beside}))

    def judge_unit(self, candidate: Candidate, precision: Precision, reading: Reading, seconds: int) -> str:
        """The unit that judges a candidate, in two runs of so many seconds. Raises UserError and InventoryError."""
        arm, beside = self.arm(candidate, None), self._exact(candidate, precision)
        if beside is None:
            raise UserError(f"`{precision.beside}` fits nowhere, and is what it is judged beside", "name a smaller one")
        exact = self.arm(beside, None) if precision.model else arm
        self._require_one_vocabulary(precision)
        engine = self.rig.engines[arm.instance.engine]
        flags, tool, server = flags_of(engine), TRAITS[engine.kind].divergence, arm.instance.server
        if flags is None or tool is None or server.program is None:
            raise UserError(
                f"engine `{arm.instance.engine}` has no program that compares caches", "leave `kv` as it is"
            )
        of = Pass(reading.context, reading.chunks, reading.batch, str(ARMS_TEXT), LOGITS)
        program = str(PurePosixPath(server.program).with_name(tool))
        kept = words_with_cache(flags, exact.instance.server.arguments, BASE)
        if precision.kv:
            words = words_with_cache(flags, server.arguments, precision.kv)
        else:
            words = words_as_served(flags, server.arguments)[0]
        runs = ((program, *kept_arguments(kept, of)), (program, *compared_arguments(words, of)))
        return run_unit(arm, runs, seconds).text

    def _require_one_vocabulary(self, precision: Precision) -> None:
        other, finest = (self.known.headers.get(each) for each in (precision.model, precision.beside))
        if other and finest and other.vocabulary != finest.vocabulary:
            many = f"{other.vocabulary:,} kinds of tokens, and `{precision.beside}` has {finest.vocabulary:,}"
            raise UserError(f"`{precision.model}` has {many}: they are two models", "leave it out of `models`")


def tune_target(
    inventory: Path, roles: Sequence[Role], rig: str, instance: str | None, watts: tuple[int, ...] = ()
) -> TuneTarget:
    """An instance that is declared, or the only one, with these power limits in place of those that it declares.

    Raises UserError and InventoryError.
    """
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    names = instance_names(plan)
    if instance is None and len(names) != 1:
        raise instance_name_error(plan, None)
    name = instance or names[0]
    server = unit_of(plan, rig, name)
    chosen = arm_instance(plan, rig, name, arms_port(plan, name))
    locked = read_lock(inventory)
    models = declared.models.items()
    headers = {name: header for name, model in models if (header := locked.header(model))}
    sizes = {name: size for name, model in models if (size := locked.projector_size(model))}
    known = SearchedInstance(declared, chosen.name, headers | local_headers(declared, locked).headers, sizes)
    space, start = space_of(known, judged=known.instance.quality is not None)
    limits = watts or known.instance.tried_limits
    return TuneTarget(inventory, tuple(roles), known, plan, server, chosen, space, start, limits, known.header)


def _files(models: Iterable[ModelPlan]) -> list[str]:
    return sorted(file.sha256 or file.name for each in models for file in each.files)


def _hash(said: list[Any]) -> str:
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
