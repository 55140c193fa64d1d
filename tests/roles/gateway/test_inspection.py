"""What the gateway inspects, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.layout import GATEWAY_TALK, GATEWAY_UNIT, UNITS
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.system import Ended
from roles.gateway.onhost import Found, InspectInput, RunningState, inspect
from tests.support.recording import InspectedHost

SHOWN = f"Id={GATEWAY_UNIT}\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\nMainPID=7\n"
UNIT = ServiceState("active", "enabled", needs_reload=False, spec="ab")


def host(printed: str = "", code: int = 0) -> InspectedHost:
    """Return a host whose gateway runs, and whose program prints this about it."""
    found = InspectedHost(
        {},
        ends={
            f"systemctl show -p Id,ActiveState,UnitFileState,NeedDaemonReload,MainPID {GATEWAY_UNIT}": Ended(0, SHOWN),
            str(GATEWAY_TALK): Ended(code, printed),
            "systemctl show -p Id,ActiveState,UnitFileState haproxy.service": Ended(
                0, "Id=haproxy.service\nActiveState=active\n"
            ),
            "dpkg": Ended(0, ""),
        },
    )
    found.folders.add("/run/systemd/system")
    found.write(f"{UNITS}/{GATEWAY_UNIT}", "text")
    found.write("/proc/7/environ", "LLAMAHERD_SPEC=ab\0")
    return found


@pytest.mark.parametrize(
    ("printed", "running"),
    [
        ("ab/8000 same\n", RunningState("ab", 8000, maps_are_read=True)),
        ("ab/8000 other\n", RunningState("ab", 8000, maps_are_read=False)),
        ("ab same\n", RunningState("ab", None, maps_are_read=True)),
        ("ab/many same\n", RunningState("ab", None, maps_are_read=True)),
        ("", None),
        ("one two three\n", None),
    ],
)
def test_a_gateway_that_runs(printed: str, running: RunningState | None) -> None:
    assert inspect(InspectInput(planned=True), host(printed)) == Found(UNIT, running, idle_own=True)


def test_a_gateway_that_is_not_declared_any_more() -> None:
    played = host()
    assert inspect(InspectInput(planned=False), played) == Found(UNIT)
    assert [each[0] for each in played.done if each[0] != "write"] == ["systemctl"]


def test_a_host_without_one() -> None:
    played = host()
    played.remove(f"{UNITS}/{GATEWAY_UNIT}")
    assert inspect(InspectInput(planned=True), played) == Found(idle_own=True)
