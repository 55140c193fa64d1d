"""The instance that is tuned: the plans of its candidates, and the units that judge their quality."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from llamaherd import __version__
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.engines import TRAITS, flags_of
from llamaherd.gguf.header import Header
from llamaherd.inventory.exact_edits import Setting, with_settings
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import Document
from llamaherd.layout import ARMS_TEXT
from llamaherd.measure.client.requests import suite
from llamaherd.measure.trials.divergence import LOGITS, UnitHost, compare_outputs, divergence_text
from llamaherd.measure.trials.trial import Variant, program_unit, trial_port, unit_of, variant_instance
from llamaherd.measure.tune.candidate import MODEL, Candidate, Judged, Limits, Precision, settings_of, with_keys
from llamaherd.measure.tune.journal import Fingerprint, Head, fingerprint_of, keys_of
from llamaherd.measure.tune.objective import Objective, Purpose
from llamaherd.measure.tune.search import SearchedInstance, Space, space_of
from llamaherd.memory.divergence import (
    BASE,
    Pass,
    Reading,
    compared_arguments,
    kept_arguments,
    readings,
    words_as_served,
    words_with_cache,
)
from llamaherd.pipeline.fleet_files import local_headers
from llamaherd.pipeline.load import plans, read_lock
from llamaherd.plan import InstancePlan, ModelPlan, Plan
from llamaherd.plan.plan import instance_name_error, instance_names
from llamaherd.role.role import Role


@dataclass(frozen=True)
class TuneTarget:
    """An instance, and everything that a search may change. `start` contains its declared keys.

    `server` is the running unit, which stops for the search: that of the instance, or of its group. `watts` are power
    limits that are measured in the end.
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
        """The declared rig."""
        return self.known.rig

    @property
    def limits(self) -> Limits | None:
        """The limits of quality for coarser caches and other weights; None if none is tried."""
        quality = self.known.instance.quality
        return Limits(kld=quality.kld, same_top=quality.same_top) if quality else None

    @property
    def text(self) -> str:
        """The text that quality is measured on; empty if it is not measured."""
        return divergence_text() if self.limits else ""

    @property
    def context(self) -> int:
        """The context of each request."""
        return self.declared.context // max(1, self.declared.endpoint.streams)

    @property
    def identity(self) -> str:
        """The hash of everything that measurements depend on: server, GPUs, host, requests and space."""
        space = [(axis.key, axis.values) for axis in self.space.axes]
        machine = [self.rig.host.model_dump_json(), self.rig.gpus.model_dump_json() if self.rig.gpus else None]
        limits = [self.limits.model_dump()] if self.limits else []
        watts = [self.watts] if self.watts else []
        others = [_files(self.others)] if self.others else []
        facts = [self.declared.build, self._files, self.declared.spec, suite().sha256, space, machine, *limits, *watts]
        return _hash([*facts, *others])

    def head(self, purpose: Purpose, began: str) -> Head:
        """Return the first line of the journal of a search."""
        streams = max(1, self.declared.endpoint.streams)
        return Head(
            llamaherd=__version__,
            rig=self.rig.rig,
            instance=self.declared.name,
            began=began,
            identity=self.identity,
            kind=self.kind,
            likeness=self.likeness,
            aim=Objective(purpose=purpose, streams=streams),
            declared=keys_of(self.start),
            quality=self.limits,
            finest=self.known.finest,
            gpus=self.known.instance.on,
            watts=self.watts,
        )

    @property
    def others(self) -> list[ModelPlan]:
        """The models that may replace the declared one."""
        return [each for each in self.plan.models if each.name in self.known.instance.tried_models]

    @property
    def _files(self) -> list[str]:
        """The hashes of the files of its model and its draft model."""
        folders = {self.declared.model_folder, self.declared.draft_folder}
        return _files(each for each in self.plan.models if each.folder in folders)

    @property
    def kind(self) -> str:
        """The hash that similar instances share on any rig: engine, model, GPUs, cores and context."""
        rig, instance = self.rig, self.rig.instances[self.declared.name]
        cards = rig.gpus.cards if rig.gpus else {}
        gpus = [(cards[name].model, cards[name].memory_bytes) for name in instance.on]
        engine = rig.engines[instance.engine].kind
        return _hash([engine, self._files, gpus, rig.host.cpu.cores, instance.context, instance.parallel])

    @property
    def likeness(self) -> Fingerprint:
        """The same facts as readable values, for commands without the rig."""
        return fingerprint_of(self.rig, self.declared.name, self.header)

    def hinted(self, other: Candidate) -> Candidate:
        """Return the keys that another search has found, as far as this space contains them."""
        values = {axis.key: axis.values for axis in self.space.axes}
        return self.start.with_keys({key: value for key, value in other.keys if value in values.get(key, ())})

    def arm(self, candidate: Candidate, load_seconds: int | None) -> Variant:
        """Plan a candidate as a tried server, with a limit for its load. Raise UserError and InventoryError."""
        rig, name = self.rig.rig, self.declared.name
        port = trial_port(self.plan, name)
        settings = settings_of(candidate, self.start)
        if load_seconds is not None:
            settings = (*settings, Setting(("load_timeout",), load_seconds, f"load_timeout={load_seconds}"))

        def edit(whole: Document) -> Document:
            return with_settings(whole, name, settings) if whole.data.get("rig") == rig else whole

        plan = plans(self.inventory, self.roles, (rig,), edit=edit)[rig][1]
        return Variant("C", f"{rig}/{name}", variant_instance(plan, rig, name, port, load_seconds))

    def readings(self, candidate: Candidate, precision: Precision) -> Sequence[Reading]:
        """Return the ways to read a text that measures a candidate's quality, the best first.

        For other weights, these are the ways of the weights with less memory.
        """
        known, exact = self.known, self._exact(candidate, precision)
        if exact is None:
            return []
        instances = [with_keys(known.instance, each) for each in dict.fromkeys((candidate, exact))]
        ways = [list(readings(known.facts, known.name, each)) for each in instances]
        return min(ways, key=lambda each: each[0].context if each else 0)

    def _exact(self, candidate: Candidate, precision: Precision) -> Candidate | None:
        """Return the reference of a candidate: itself, or the finest weights, as far as they fit on the GPUs."""
        if not precision.model:
            return candidate
        return self.space.pack(candidate.with_keys({MODEL: precision.beside}))

    def judge_unit(self, candidate: Candidate, precision: Precision, reading: Reading, seconds: int) -> str:
        """Render the unit that measures the quality of a candidate, in two runs of some seconds. Raise UserError."""
        arm, beside = self.arm(candidate, None), self._exact(candidate, precision)
        if beside is None:
            raise UserError(f"the reference `{precision.beside}` does not fit into memory", "name a smaller one")
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
        return program_unit(arm, runs, seconds).text

    def judge(self, host: UnitHost, candidate: Candidate, precision: Precision, seconds: float) -> Judged:
        """Measure the quality of a candidate on a host within some seconds.

        Raise UserError if the connection to the host ends: then nothing is known of the candidate.
        """
        ways = self.readings(candidate, precision)
        found = compare_outputs(host, partial(self.judge_unit, candidate, precision), ways, seconds)
        return Judged.model_validate({**dict(found), **asdict(precision)})

    def _require_one_vocabulary(self, precision: Precision) -> None:
        other, finest = (self.known.headers.get(each) for each in (precision.model, precision.beside))
        if other and finest and other.vocabulary != finest.vocabulary:
            many = f"{other.vocabulary:,} kinds of tokens, and `{precision.beside}` has {finest.vocabulary:,}"
            raise UserError(f"`{precision.model}` has {many}: they are two models", "leave it out of `models`")


def tune_target(
    inventory: Path, roles: Sequence[Role], rig: str, instance: str | None, watts: tuple[int, ...] = ()
) -> TuneTarget:
    """Return the target: an instance, or the only one. `watts` replace its declared power limits.

    Raise UserError and InventoryError.
    """
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    names = instance_names(plan)
    if instance is None and len(names) != 1:
        raise instance_name_error(plan, None)
    name = instance or names[0]
    server = unit_of(plan, rig, name)
    chosen = variant_instance(plan, rig, name, trial_port(plan, name))
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


def _hash(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
