"""What is tuned: an instance as it is declared, its candidates as they would be planned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamaherd.bench.arms.planned import unit_instance
from llamaherd.bench.arms.units import LISTEN, Arm, arms_port
from llamaherd.bench.asking.suite import suite
from llamaherd.diagnostics.findings import Finding, UserError
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.settings import Setting, with_settings
from llamaherd.inventory.yamlfile import Document
from llamaherd.pipeline.load import plans, read_lock
from llamaherd.pipeline.local_headers import local_headers
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.role import Role
from llamaherd.tune.axes import Known, space_of
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.keys import settings_of
from llamaherd.tune.likeness import Likeness, likeness_of
from llamaherd.tune.space import Space


@dataclass(frozen=True)
class Tuned:
    """An instance with all that may be changed about it. `start` are its keys as they are declared."""

    inventory: Path
    roles: tuple[Role, ...]
    rig: Rig
    plan: Plan
    declared: InstancePlan
    space: Space
    start: Candidate
    header: Header | None = None

    @property
    def context(self) -> int:
        """What each request has of it."""
        return self.declared.context // max(1, self.declared.endpoint.streams)

    @property
    def identity(self) -> str:
        """The hash of what a reading hangs on: what serves and how, on which GPUs and host, and what is asked."""
        space = [(axis.key, axis.values) for axis in self.space.axes]
        machine = [self.rig.host.model_dump_json(), self.rig.gpus.model_dump_json() if self.rig.gpus else None]
        return _hash([self.declared.build, self._files, self.declared.spec, suite().sha256, space, machine])

    @property
    def _files(self) -> list[str]:
        """What tells its model's files from others, and those of what drafts for it."""
        folders = {self.declared.model_folder, self.declared.draft_folder}
        models = (each for each in self.plan.models if each.folder in folders)
        return sorted(file.sha256 or file.name for each in models for file in each.files)

    @property
    def kind(self) -> str:
        """The hash of what it has in common with twins: engine, model, GPUs, cores and context, wherever they are."""
        rig, instance = self.rig, self.rig.instances[self.declared.name]
        cards = rig.gpus.cards if rig.gpus else {}
        gpus = [(cards[name].model, cards[name].memory_bytes) for name in instance.on]
        engine = rig.engines[instance.engine].kind
        return _hash([engine, self._files, gpus, rig.host.cpu.cores, instance.context, instance.parallel])

    @property
    def likeness(self) -> Likeness:
        """The same in words, for those who know only a part of it."""
        return likeness_of(self.rig, self.declared.name, self.header)

    def hinted(self, other: Candidate) -> Candidate:
        """What another search has found, as far as it may be tried here."""
        values = {axis.key: axis.values for axis in self.space.axes}
        return self.start.with_keys({key: value for key, value in other.keys if value in values.get(key, ())})

    def arm(self, candidate: Candidate, load_seconds: int | None) -> Arm:
        """A candidate as a unit of its own, which may take so long to load. Raises UserError and InventoryError."""
        rig, name = self.rig.rig, self.declared.name
        port = arms_port(self.plan, name)
        there = [Setting(("port",), port, f"port={port}"), Setting(("listen",), LISTEN, f"listen={LISTEN}")]
        if load_seconds is not None:
            there.append(Setting(("load_timeout",), load_seconds, f"load_timeout={load_seconds}"))
        settings = (*settings_of(candidate, self.start), *there)

        def edit(whole: Document) -> Document:
            return with_settings(whole, name, settings) if whole.data.get("rig") == rig else whole

        plan = plans(self.inventory, self.roles, (rig,), edit=edit)[rig][1]
        return Arm("C", f"{rig}/{name}", unit_instance(plan, rig, name))


def tuned(inventory: Path, roles: Sequence[Role], rig: str, instance: str | None, *, judged: bool = False) -> Tuned:
    """An instance that is declared, or the only one. Raises UserError and InventoryError."""
    usual: list[Finding] = []
    declared, plan = plans(inventory, roles, (rig,), doubtful=usual.extend)[rig]
    names = [each.name for each in plan.instances]
    if instance is None and len(names) != 1:
        raise UserError(f"{rig} has {len(names)} instances", f"name one of {', '.join(names) or 'them'}")
    chosen = unit_instance(plan, rig, instance or names[0])
    locked = read_lock(inventory)
    models = declared.models.items()
    headers = {name: header for name, model in models if (header := locked.header(model))}
    sizes = {name: size for name, model in models if (size := locked.projector_size(model))}
    known = Known(declared, chosen.name, headers | local_headers(declared, locked).headers, sizes)
    space, start = space_of(known, judged=judged)
    return Tuned(inventory, tuple(roles), declared, plan, chosen, space, start, known.header)


def _hash(said: list[Any]) -> str:
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
