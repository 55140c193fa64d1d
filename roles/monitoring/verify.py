"""Whether what watches does: asked on its host of the programs themselves."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import Answers
from llamaherd.layout import ALERTMANAGER_PORT, EXPORTER_PORT, MONITORING, MONITORING_USER, PROMETHEUS_PORT
from llamaherd.plan import MonitoringPlan, Plan, WatcherPlan
from llamaherd.render import render
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified
from llamaherd.role.service import service_check
from llamaherd.text.numbers import whole
from roles.monitoring.recordings import unanswered


def question(plan: Plan) -> str:
    """Ask units and programs."""
    made = plan.monitoring
    if made is None or not made.units:
        return ""
    return render(
        "monitoring/verify.sh.j2",
        units=[unit.path.rpartition("/")[2] for unit in made.units],
        exporter=EXPORTER_PORT if made.exporter else None,
        figures=made.exporter is not None and made.exporter.figures is not None,
        watcher=made.watcher is not None,
        folder=MONITORING,
        prometheus=PROMETHEUS_PORT,
        alertmanager=ALERTMANAGER_PORT,
        down=f"query={unanswered()}",
    )


def judge(judging: Judging) -> Verified:
    """What follows from the answers."""
    made = judging.plan.monitoring
    return Verified(checks=tuple(monitoring_checks(made, judging.answers))) if made and made.units else Verified()


def monitoring_checks(made: MonitoringPlan, answers: Answers) -> Iterator[Check]:
    """Its units, whether figures are told, who may read keys, and whether all that is watched answers."""
    for unit in made.units:
        name = unit.path.rpartition("/")[2]
        yield service_check(name.removesuffix(".service"), answers.get(("monitoring unit", name), ""))
    if made.exporter:
        count = answers.get(("monitoring exporter", ""), "").strip()
        told = bool(whole(count))
        yield Check("figures of the host", told, f"{count} are told" if told else "none are told: `herd up`")
    if made.exporter and made.exporter.figures:
        told = bool(answers.get(("monitoring figures", ""), "").strip())
        why = "see `systemctl status llamaherd-figures` there"
        yield Check("further figures", told, "GPUs or a certificate are told of" if told else f"none are told: {why}")
    if made.watcher:
        yield from _watcher(made.watcher, answers)


def _watcher(watcher: WatcherPlan, answers: Answers) -> Iterator[Check]:
    owners = answers.get(("monitoring files", ""), "")
    wrong = [line for line in owners.split("\n") if line and not line.startswith((f"600 {MONITORING_USER}", "700 "))]
    detail = f"others may read {wrong[0]}: `herd up` mends that" if wrong else "its user alone reads keys"
    yield Check("monitoring files", bool(owners) and not wrong, detail if owners else "there are none: `herd up`")
    read = answers.get(("monitoring read", ""), "").strip()
    detail = "has read what is planned" if read == watcher.spec else f"has read {read or 'nothing'}, not {watcher.spec}"
    yield Check("Prometheus", read == watcher.spec, detail)
    status = answers.get(("monitoring alertmanager", ""), "").strip()
    yield Check("Alertmanager", status == "200", f"HTTP {status or 'no answer'} to whether it is ready")
    down = {line for line in answers.get(("monitoring down", ""), "").split("\n") if line}
    # Another rig may be off, and a server may read a long prompt: whom it concerns is told by an alert.
    detail = f"no answer from {', '.join(sorted(down))}" if down else "all that is watched answers"
    yield Check("what is watched", True, detail, doubt=bool(down))
