"""Inputs of the verbs that measurements use, as the documents that hosts read, by the names of their golden files."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.measure.bench.job import limits_input
from llamaherd.measure.meter.meter import meter_input
from llamaherd.measure.trials.trial import Variant
from llamaherd.onhost.reservation import MeasurementLockInput
from llamaherd.plan.plan import instances_of
from tests.render.pieces import instance, taking
from tests.render.plans import CPU, GPU, GROUP, KEYED
from tests.render.verbs import indented
from tests.support.trials import trial

CHAT, REASONER = instance(CPU, "chat"), instance(GPU, "reasoner")
ALONE = Variant("A", "gpu/reasoner", taking(REASONER))
TWO = (Variant("A", "cpu/chat", CHAT), Variant("B", "cpu/chat with batch=1024", CHAT))

INPUTS: dict[str, tuple[str, Callable[[], object]]] = {
    "measure_alone": ("llamaherd.reservation.hold_measurement", lambda: MeasurementLockInput("tom on desk")),
    "limits": ("llamaherd.reservation.hold_limits", lambda: limits_input(["GPU-3090", "GPU-5090"], 600)),
    "limits_within": ("llamaherd.reservation.hold_limits", lambda: limits_input(["GPU-3090"], 600, within=True)),
    "meter_of_a_unit": ("llamaherd.meter.watch", lambda: meter_input(instance(KEYED, "chat"), 300)),
    "meter_of_a_groups_instance": ("llamaherd.meter.watch", lambda: meter_input(instances_of(GROUP)[1], 300)),
    "meter_of_a_container": ("llamaherd.meter.watch", lambda: meter_input(instance(KEYED, "drafter"), 7200)),
    "arms": ("serve.trials.run", lambda: trial(TWO, [CHAT], 1200).input),
    "arms_on_cards": ("serve.trials.run", lambda: trial([ALONE], [REASONER, CHAT], 1200).input),
    "arms_of_a_search_that_judges": (
        "serve.trials.run",
        lambda: trial(TWO[:1], [CHAT], 1200, replaceable=True, text="What is read.\n").input,
    ),
    "arms_beside": ("serve.trials.run", lambda: trial([ALONE], (), 1200, author="tom's").input),
}
"""The verb and the input of each."""


def documents() -> dict[str, str]:
    """Return the documents, indented, by the names of their golden files."""
    return {f"{name}.json": indented(verb, given()) for name, (verb, given) in INPUTS.items()}
