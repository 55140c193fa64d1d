"""systemctl and docker as verbs call them: tries while systemd re-executes, and the limits of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from llamaherd.onhost.clients import (
    DOCKER_LOG,
    DOCKER_LONG_SECONDS,
    DOCKER_SECONDS,
    PAUSES,
    docker,
    pull_image,
    systemctl,
    unit_properties,
)
from llamaherd.onhost.system import TIMED_OUT, Ended
from tests.support.played_host import PlayedHost
from tests.support.service_host import ServiceHost

NO_BUS = "Failed to connect to bus: Connection refused"


class Programs(PlayedHost):
    """A host whose programs end as a test says, and the last of these ends again and again."""

    def __init__(self, *ends: Ended) -> None:
        super().__init__({})
        self.ends = list(ends)
        self.ran: list[tuple[list[str], float]] = []
        self.slept: list[float] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Record a program, and end it."""
        del text, environment
        self.ran.append(([*argv], seconds))
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def sleep(self, seconds: float) -> None:
        """Record a pause."""
        self.slept.append(seconds)


def test_what_succeeds_is_run_once() -> None:
    host = Programs(Ended(0, "active\n"))
    assert systemctl(host, "is-active", "a.service", seconds=7) == Ended(0, "active\n")
    assert host.ran == [(["systemctl", "is-active", "a.service"], 7)]


@pytest.mark.parametrize("error", ["Unit a.service not found.", "Job for a.service failed.", ""])
def test_what_fails_by_itself_is_run_once(error: str) -> None:
    host = Programs(Ended(5, "", error))
    assert systemctl(host, "start", "a.service").code == 5
    assert (len(host.ran), host.slept) == (1, [])


@pytest.mark.parametrize(
    "error",
    [
        NO_BUS,
        "Failed to connect to system scope bus via local transport: Connection refused",
        "Failed to reload daemon: Connection reset by peer",
        "Failed to start a.service: Connection timed out",
        "Failed to list units: Transport endpoint is not connected",
        "Warning! D-Bus connection terminated.",
        "Remote peer disconnected",
    ],
)
def test_systemd_that_executes_itself_again_is_tried_again(error: str) -> None:
    host = Programs(Ended(1, "", error), Ended(1, "", error), Ended(0))
    assert systemctl(host, "start", "a.service").ok
    assert [words for words, _ in host.ran] == [["systemctl", "start", "a.service"]] * 3
    assert host.slept == list(PAUSES[:2])


def test_a_restart_is_tried_again_as_a_start() -> None:
    """It may have been done by the systemd that went away: a second one would end a server that loads."""
    host = Programs(Ended(1, "", NO_BUS), Ended(0))
    systemctl(host, "restart", "a.service")
    assert [words[1] for words, _ in host.ran] == ["restart", "start"]


def test_systemd_that_never_comes_back() -> None:
    host = Programs(Ended(1, "", NO_BUS))
    assert systemctl(host, "stop", "a.service") == Ended(1, "", NO_BUS)
    assert host.slept == list(PAUSES)


def test_what_takes_too_long_is_not_tried_again() -> None:
    host = Programs(Ended(TIMED_OUT, "", NO_BUS))
    assert systemctl(host, "start", "a.service").code == TIMED_OUT
    assert len(host.ran) == 1


def test_properties_of_a_unit() -> None:
    host = Programs(Ended(0, "ActiveState=active\nEnvironment=A=b c\n\nnonsense\n"))
    found = unit_properties(host, "a.service", "ActiveState", "Environment")
    assert found == {"ActiveState": "active", "Environment": "A=b c"}
    assert host.ran[0][0] == ["systemctl", "show", "-p", "ActiveState,Environment", "a.service"]
    assert unit_properties(Programs(Ended(1, "ActiveState=active\n")), "a.service", "ActiveState") == {}


@pytest.mark.parametrize(
    ("verb", "seconds"),
    [
        ("build", DOCKER_LONG_SECONDS),
        ("compose", DOCKER_LONG_SECONDS),
        ("run", DOCKER_LONG_SECONDS),
        ("inspect", DOCKER_SECONDS),
        ("stop", DOCKER_SECONDS),
    ],
)
def test_docker_has_a_limit(verb: str, seconds: float) -> None:
    host = Programs(Ended(0))
    assert docker(host, verb, "a").ok
    assert host.ran == [(["docker", verb, "a"], seconds)]


def test_the_layers_of_an_image_are_reported() -> None:
    host = ServiceHost({}, ends={"docker pull": Ended(1, "", "Error response from daemon: no space\n")})
    layers = [f"{number:012x}" for number in range(8)]
    lines = (
        "latest: Pulling from library/x\n",
        "".join(f"{layer}: Pulling fs layer\n" for layer in layers) + f"{layers[0]}: Already ex",
        f"ists\n{layers[1]}: Verifying Checksum\n",
        f"{layers[1]}: Download complete\n{layers[2]}: Download complete\n",
        f"{layers[1]}: Pull complete\n{layers[2]}: Pull complete\nnonsense\n",
    )
    host.logging = lambda _: lines
    ended = pull_image(host, "library/x@sha256:ab")
    assert host.log == [
        "fetching library/x@sha256:ab: 0 of 8 layers",
        "fetching library/x@sha256:ab: 1 of 8 layers",
    ]
    assert (ended.code, ended.out.splitlines()[-1]) == (1, "Error response from daemon: no space")
    assert (host.read(DOCKER_LOG) or "").startswith("latest: Pulling from library/x\n")


def test_a_daemon_that_prints_nothing_is_waited_for_in_sight() -> None:
    host = ServiceHost({})
    host.logging = lambda _: [""] * 3
    assert pull_image(host, "x").ok
    assert host.log == ["fetching x"]
