"""Addresses that instances are to listen on: one that the host has not is said before anything is stopped."""

from __future__ import annotations

import pytest

from roles.serve import ROLE
from tests.support.rigs import cpu_rig, planned
from tests.support.states import host_with

OWN = ["10.0.0.5/24", "fd00::5/64"]


def refused(listen: str, own: list[str]) -> list[str]:
    """Why a host with these addresses cannot have `chat` listen there."""
    plan = planned(cpu_rig(), {"instances/chat/listen": listen})
    return [str(each) for each in ROLE.refusals(plan, host_with(addresses=own))]


@pytest.mark.parametrize("listen", ["10.0.0.5", "fd00::5", "0.0.0.0", "::", "127.0.0.1", "127.0.0.2"])
def test_one_of_its_own(listen: str) -> None:
    assert refused(listen, OWN) == []


@pytest.mark.parametrize("listen", ["10.0.0.50", "fd00::50"])
def test_one_of_another_host(listen: str) -> None:
    assert refused(listen, OWN) == [
        f"instance `chat` is to listen on {listen}, which is no address of this host\n"
        "  help: it has 10.0.0.5, fd00::5: choose one of them, or bring the missing address up"
    ]


def test_a_host_that_does_not_tell_its_addresses() -> None:
    assert refused("10.0.0.50", []) == []
