"""What a change of an instance may cost, and how what it says is compared with what another one says."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import PurePosixPath

from llamaherd.engines import TRAITS, flags_of
from llamaherd.engines.divergence import words_as_served
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Gate, Rig
from llamaherd.memory.reading import readings
from llamaherd.plan import BuildPlan, DivergencePlan, GatePlan, ServerSpec

BUDGET = 20 * 60
"""Seconds for which a gate measures, where nothing is said."""
_WAYS = 3
"""Of reading the text, as many are tried where there is no room for the one before."""


def plan_gate(gate: Gate | None) -> GatePlan | None:
    """What a change may cost; None where nothing is declared."""
    if gate is None:
        return None
    return GatePlan(decode=gate.decode, prefill=gate.prefill, kld=gate.kld, seconds=gate.budget or BUDGET)


def plan_divergence(
    rig: Rig, name: str, server: ServerSpec, build: BuildPlan | None, headers: Mapping[str, Header]
) -> DivergencePlan | None:
    """How what an instance says is compared; None where the program for it was not built with its engine."""
    declared = rig.instances[name]
    engine = rig.engines[declared.engine]
    flags, tool = flags_of(engine), TRAITS[engine.kind].divergence
    if flags is None or tool is None or server.program is None or build is None or tool not in build.targets:
        return None
    says, more = words_as_served(flags, server.arguments)
    header = headers.get(declared.model)
    return DivergencePlan(
        tool=str(PurePosixPath(server.program).with_name(tool)),
        says=says,
        more=more,
        vocabulary=header.vocabulary if header else 0,
        readings=tuple(islice(readings(rig, name, declared, headers), _WAYS)),
    )
