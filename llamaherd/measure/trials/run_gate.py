"""The gate of a run: measure a changed server and the running one, and return why the change is rejected."""

from __future__ import annotations

from llamaherd.measure.results.store import results_folder
from llamaherd.measure.trials.divergence import Compared
from llamaherd.measure.trials.gate import UNJUDGED, GateOutcome, GateRun, QualityRow, gate_pair, has_same_speed
from llamaherd.measure.trials.trial import NotStartedError
from llamaherd.pipeline.history import NEWEST_RELEASES, query_past
from llamaherd.pipeline.release import Past
from llamaherd.plan import GatePlan, Plan
from llamaherd.role.changes import GateRefusal, GateRequest

_SLOWER = "change the inventory, `gate` with it, or `herd up --retry` to have it as slow as it is"
_BEYOND = "change the inventory, `gate` with it, or `herd up --retry` to have it as it is"


def judge_change(request: GateRequest) -> GateRefusal | None:
    """Return why the gate rejects a changed server; None if it accepts the change. Raise UserError.

    The host does not keep the reason if nothing could be measured: the next run may be able to measure.
    """
    gate = request.gated.instance.gate
    assert gate
    found = _measure(request, gate)
    if found.lets_in:
        return None
    if found.slower:
        return GateRefusal(f"it is slower than what serves: {'; '.join(map(str, found.slower))}", _SLOWER, kept=True)
    assert found.quality
    if found.quality.verdict == "not judged":
        return GateRefusal(str(found.quality), found.quality.way_out, kept=False)
    return GateRefusal(f"it says other things than what serves: {found.quality}", _BEYOND, kept=True)


def _measure(request: GateRequest, gate: GatePlan) -> GateOutcome:
    """Return what is known of both servers; an empty outcome if nothing is measured."""
    gated, name, say = request.gated, request.gated.instance.name, request.say
    was = _plan_with_server(query_past(request.connect, newest=NEWEST_RELEASES), name, gated.was)
    if was is None:
        says = f"nothing is known here of what serves, {gated.was}"
        if gate.kld is not None:
            return GateOutcome(QualityRow(gate.kld, Compared(says=says), UNJUDGED))
        say(f"{name} is not measured by its gate: {says}")
        return GateOutcome()
    pair = gate_pair(request.connect, was, request.plan, name)
    if has_same_speed(pair):
        return GateOutcome()
    results = results_folder(request.inventory)
    try:
        found = GateRun(pair, gate, results, request.user, say, speed=gated.speed).measure()
    except NotStartedError as error:
        # What is declared shows in its switch why it does not start; what serves may be a GPU short by now.
        say(f"{name} is not measured by its gate: {error.message}")
        return GateOutcome()
    for line in found.told:
        say(f"{name}: {line}")
    return found


def _plan_with_server(past: Past, name: str, spec: str) -> Plan | None:
    """Return the newest plan of a host that has this server, by name and spec; None if the host keeps no such plan."""
    plans = (past.plans[number] for number in sorted(past.plans, reverse=True))
    return next((plan for plan in plans for each in plan.instances if (each.name, each.spec) == (name, spec)), None)
