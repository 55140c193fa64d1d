"""The CUDA toolkit that a rig builds with, and the nearest that goes with all else of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llamaherd.checks.building import built_with_cuda, gpus_built_for, one_of_each
from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Place
from llamaherd.inventory.schema import Card, Engine
from llamaherd.inventory.schema.machine import OperatingSystem
from llamaherd.reference import toolchains
from llamaherd.reference.toolchains import Needs, Release, dotted


@dataclass(frozen=True)
class _WayOut:
    """What to write for `cuda` so that all goes together, and what else where that alone is not possible."""

    needs: Needs
    declared: Release

    @property
    def said(self) -> str:
        """The sentence; it gives up the driver first."""
        if found := self.needs.nearest(self.declared):
            return f'write `cuda: "{dotted(found)}"`'
        if found := replace(self.needs, driver=None).nearest(self.declared):
            return f'write `cuda: "{dotted(found)}"` and `branch: {toolchains.FIRST_DRIVER[found[0]]}`'
        return "no toolkit compiles for all of these GPUs on this system: leave one out of `on`, or run an image"


@dataclass(frozen=True)
class Toolkit:
    """The toolkit that a rig declares and builds with, and what it must go with."""

    subject: RigContext
    written: str
    declared: Release
    engines: Mapping[str, Engine]
    cards: Mapping[str, Card]
    """One of each kind that engines are compiled for."""
    first: Release
    """The oldest that can be had."""
    place: Place

    @property
    def system(self) -> OperatingSystem:
        """The host's distribution."""
        return self.subject.rig.host.os

    @property
    def glibc(self) -> Release:
        """The host's C library."""
        return toolchains.GLIBC[self.system]

    @property
    def way_out(self) -> str:
        """What to write so that all goes together."""
        rig = self.subject.rig
        branch = int(rig.gpus.driver.branch) if rig.gpus and rig.gpus.driver and rig.host.wsl is None else None
        needs = Needs({card.cuda_architecture for card in self.cards.values()}, self.glibc, branch, self.first)
        return _WayOut(needs, self.declared).said


def declared_toolkit(subject: RigContext) -> Toolkit | None:
    """The toolkit of a rig; None where nothing is built with it, or where it is none."""
    engines, gpus = built_with_cuda(subject.rig), subject.rig.gpus
    declared = toolchains.release(gpus.cuda) if gpus and engines else None
    if gpus is None or declared is None:
        return None
    cards = one_of_each(gpus_built_for(subject.rig))
    place = subject.document.value(("gpus", "cuda"))
    return Toolkit(subject, gpus.cuda, declared, engines, cards, _first_packaged(subject), place)


def _first_packaged(subject: RigContext) -> Release:
    """The oldest toolkit that can be had: NVIDIA's own repository is known, another one may hold anything."""
    own = subject.rig.gpus and subject.rig.gpus.repository is None and subject.rig.host.wsl is None
    return toolchains.FIRST_PACKAGED.get(subject.rig.host.os, (0, 0)) if own else (0, 0)
