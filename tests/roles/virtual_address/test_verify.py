"""Whether verify believes that the address is somewhere."""

from __future__ import annotations

import pytest

from llamaherd.host.responses import ProbeOutputs
from roles.virtual_address import address_checks, probes
from tests.support.virtual_address import ADDRESS, shared_by, sharing_plans

FINE: ProbeOutputs = {
    ("virtual address unit", ""): "ActiveState=active\nUnitFileState=enabled",
    ("virtual address", ""): f"{ADDRESS} here",
    ("virtual address health", ""): "200",
}


def checked(answers: ProbeOutputs) -> list[tuple[bool, str]]:
    return [(each.ok, each.detail) for each in address_checks(shared_by(sharing_plans()["box"]), answers)]


@pytest.mark.parametrize(("where", "said"), [("here", "on this rig"), ("elsewhere", "on another host")])
def test_an_address_that_is_answered_at_passes_wherever_it_is(where: str, said: str) -> None:
    found = checked({**FINE, ("virtual address", ""): f"{ADDRESS} {where}"})
    assert found[1] == (True, f"{ADDRESS} is {said}, and a gateway responds there")
    assert all(ok for ok, _ in found)


@pytest.mark.parametrize(
    ("section", "said", "detail"),
    [
        ("virtual address health", "503", "no gateway responds there"),
        ("virtual address health", "000", "no gateway responds there"),
        ("virtual address unit", "ActiveState=failed\nUnitFileState=enabled", "is failed, enabled"),
        ("virtual address unit", "", "is not there, not there"),
    ],
)
def test_what_is_not_so_fails(section: str, said: str, detail: str) -> None:
    (failed,) = [told for ok, told in checked({**FINE, (section, ""): said}) if not ok]
    assert detail in failed


def test_an_address_that_is_nowhere_fails() -> None:
    nowhere = {**FINE, ("virtual address", ""): f"{ADDRESS} elsewhere", ("virtual address health", ""): "000"}
    assert checked(nowhere)[1] == (False, f"no gateway responds at {ADDRESS}: neither rig has it")


def test_it_is_asked_for_by_the_scheme_of_the_gateway() -> None:
    assert f"http://{ADDRESS}:8000/healthz" in [word for probe in probes(sharing_plans()["box"]) for word in probe.argv]
