"""What monitoring inspects, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.layout import EXPORTER_UNIT, FIGURES_TIMER, PROMETHEUS_UNIT, UNITS
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.system import Ended
from roles.monitoring import onhost
from roles.monitoring.onhost import Found, InspectInput, Response, inspect
from tests.support.recording import InspectedHost

RUNS = ServiceState("active", "enabled", needs_reload=False, spec="")


def host(*units: str) -> InspectedHost:
    """Return a host with these units of llamaherd's; the distribution's own run, unchanged but for Prometheus'."""
    blocks = [f"Id={unit}\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n" for unit in units]
    own = {
        f"systemctl show -p Id,ActiveState,UnitFileState {name}.service": Ended(
            0, f"Id={name}.service\nActiveState=active\n"
        )
        for name in ("prometheus", "prometheus-node-exporter", "prometheus-alertmanager")
    }
    shown = {"systemctl show": Ended(0, "\n\n".join(blocks))}
    changed = {"dpkg --verify prometheus-node-exporter": Ended(0), "dpkg": Ended(0, "??5?????? c /etc/default/x\n")}
    found = InspectedHost({}, ends={**own, **shown, **changed})
    found.folders.add("/run/systemd/system")
    for unit in units:
        found.write(f"{UNITS}/{unit}", "text")
    return found


def test_an_exporter() -> None:
    found = inspect(InspectInput(watcher=False, units=(EXPORTER_UNIT, FIGURES_TIMER)), host(EXPORTER_UNIT))
    assert found == Found({EXPORTER_UNIT: RUNS}, "", ("prometheus-node-exporter",))


@pytest.mark.parametrize(
    ("text", "read"), [('{"labels": {"spec":"ab12"}}', "ab12"), ('{"spec":"not hexadecimal"}', ""), (None, "")]
)
def test_what_prometheus_has_read(text: str | None, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onhost, "fetch_local", lambda *_: None if text is None else Response(200, text))
    found = inspect(InspectInput(watcher=True, units=(PROMETHEUS_UNIT,)), host(PROMETHEUS_UNIT))
    assert found == Found({PROMETHEUS_UNIT: RUNS}, read, ())
