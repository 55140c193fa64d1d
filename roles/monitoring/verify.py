"""Verify monitoring by its programs' own APIs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.host.responses import ProbeOutputs
from llamaherd.layout import ALERTMANAGER_PORT, EXPORTER_PORT, MONITORING, MONITORING_USER, PROMETHEUS_PORT
from llamaherd.onhost.verification import Probe
from llamaherd.plan import MonitoringPlan, Plan, WatcherPlan
from llamaherd.role.report import Check, service_check
from llamaherd.role.role import Judging, Verified
from roles.monitoring.rules import down_expression

_CURL = ("curl", "-q", "-s", "--noproxy", "*", "--max-time", "10")


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of units, of what programs respond, and of files."""
    made = plan.monitoring
    if made is None:
        return
    for unit in made.units:
        name = unit.path.rpartition("/")[2]
        shown = ("systemctl", "show", "-p", "ActiveState", "-p", "UnitFileState", name)
        yield Probe("monitoring unit", name, shown, errors=True)
    if made.exporter:
        yield Probe("monitoring exporter", "", (*_CURL, f"http://127.0.0.1:{EXPORTER_PORT}/metrics"))
    if made.watcher:
        prometheus = f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1"
        ready = f"http://127.0.0.1:{ALERTMANAGER_PORT}/-/ready"
        code = ("-o", "/dev/null", "-w", r"%{http_code}\n")
        files = ("find", str(MONITORING), "-maxdepth", "2", "-printf", r"%m %u %p\n")
        down = ("-G", "--data-urlencode", f"query={down_expression()}", f"{prometheus}/query")
        yield Probe("monitoring files", "", files)
        yield Probe("monitoring read", "", (*_CURL, f"{prometheus}/rules?type=record"))
        yield Probe("monitoring down", "", (*_CURL, *down))
        yield Probe("monitoring alertmanager", "", (*_CURL, *code, ready))


def judge(judging: Judging) -> Verified:
    """Return the checks of monitoring."""
    made = judging.plan.monitoring
    return Verified(checks=tuple(monitoring_checks(made, judging.answers))) if made and made.units else Verified()


def monitoring_checks(made: MonitoringPlan, answers: ProbeOutputs) -> Iterator[Check]:
    """Yield checks of the units, the metrics, the keys' access, and the response of all targets."""
    for unit in made.units:
        name = unit.path.rpartition("/")[2]
        yield service_check(name.removesuffix(".service"), answers.get(("monitoring unit", name), ""))
    if made.exporter:
        metrics = answers.get(("monitoring exporter", ""), "")
        count = len(re.findall("^node_", metrics, re.MULTILINE))
        yield Check(
            "figures of the host", count > 0, f"{count} are exported" if count else "none are exported: `herd up`"
        )
    if made.exporter and made.exporter.figures:
        exported = "\nllamaherd_figures_seconds " in f"\n{answers.get(('monitoring exporter', ''), '')}"
        why = "see `systemctl status llamaherd-figures` there"
        yield Check(
            "further figures",
            exported,
            "those of GPUs or a certificate are exported" if exported else f"none are exported: {why}",
        )
    if made.watcher:
        yield from _watcher(made.watcher, answers)


def _watcher(watcher: WatcherPlan, answers: ProbeOutputs) -> Iterator[Check]:
    owners = answers.get(("monitoring files", ""), "")
    wrong = [line for line in owners.split("\n") if line and not line.startswith((f"600 {MONITORING_USER}", "700 "))]
    detail = f"others may read {wrong[0]}: `herd up` mends that" if wrong else "its user alone reads keys"
    yield Check("monitoring files", bool(owners) and not wrong, detail if owners else "there are none: `herd up`")
    found = re.search('"spec":"([0-9a-f]*)"', answers.get(("monitoring read", ""), ""))
    read = found[1] if found else ""
    detail = "has read what is planned" if read == watcher.spec else f"has read {read or 'nothing'}, not {watcher.spec}"
    yield Check("Prometheus", read == watcher.spec, detail)
    status = answers.get(("monitoring alertmanager", ""), "").strip()
    yield Check("Alertmanager", status == "200", f"HTTP {status or 'no answer'} to whether it is ready")
    down = {*re.findall('"instance":"([^"]*)"', answers.get(("monitoring down", ""), ""))}
    # Another rig may be off, and a server may read a long prompt: an alert reports these.
    detail = f"no response from {', '.join(sorted(down))}" if down else "all targets respond"
    yield Check("what is watched", True, detail, doubt=bool(down))
