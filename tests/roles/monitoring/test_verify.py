"""Whether verify believes what watches: by what its host was told."""

from __future__ import annotations

import pytest

from llamaherd.host.responses import ProbeOutputs
from roles.monitoring import monitoring_checks
from tests.support.monitoring import household
from tests.support.prometheus import watcher_of

BOX = household()["box"]
FINE: ProbeOutputs = {
    **{
        ("monitoring unit", f"llamaherd-{name}.service"): "ActiveState=active\nUnitFileState=enabled"
        for name in ("exporter", "prometheus", "alertmanager")
    },
    ("monitoring exporter", ""): "# HELP node_load1\nnode_load1 0.5\nllamaherd_figures_seconds 1",
    ("monitoring files", ""): "700 llamaherd-monitor /etc/llamaherd/monitoring\n600 llamaherd-monitor /e/rules.yml",
    ("monitoring read", ""): f'{{"labels":{{"spec":"{watcher_of(BOX).spec}"}}}}',
    ("monitoring down", ""): '{"data":{"result":[]}}',
    ("monitoring alertmanager", ""): "200",
}


def failed(answers: ProbeOutputs) -> list[str]:
    """The names of checks that do not pass."""
    assert BOX.monitoring
    return [each.name for each in monitoring_checks(BOX.monitoring, answers) if not each.ok]


def test_what_watches_as_declared_passes() -> None:
    assert failed(FINE) == []


@pytest.mark.parametrize(
    ("section", "said", "check"),
    [
        (("monitoring unit", "llamaherd-prometheus.service"), "ActiveState=failed", "llamaherd-prometheus"),
        (("monitoring unit", "llamaherd-exporter.service"), "", "llamaherd-exporter"),
        (("monitoring exporter", ""), "go_info 1\nllamaherd_figures_seconds 1", "figures of the host"),
        (("monitoring files", ""), "644 llamaherd-monitor /e/keys/box.chat", "monitoring files"),
        (("monitoring files", ""), "600 root /e/keys/box.chat", "monitoring files"),
        (("monitoring files", ""), "", "monitoring files"),
        (("monitoring read", ""), '"spec":"abc"', "Prometheus"),
        (("monitoring read", ""), "", "Prometheus"),
        (("monitoring alertmanager", ""), "503", "Alertmanager"),
    ],
)
def test_what_is_not_so_fails(section: tuple[str, str], said: str, check: str) -> None:
    assert failed({**FINE, section: said}) == [check]


def test_what_does_not_answer_is_a_doubt() -> None:
    """Another rig may be off."""
    assert BOX.monitoring
    down = "".join(f'{{"instance":"{name}"}}' for name in ("duo", "duo.worker", "duo"))
    checks = monitoring_checks(BOX.monitoring, {**FINE, ("monitoring down", ""): down})
    (doubtful,) = [each for each in checks if each.doubt]
    assert (doubtful.name, doubtful.detail) == ("what is watched", "no response from duo, duo.worker")
