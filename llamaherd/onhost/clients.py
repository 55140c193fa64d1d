"""systemctl and docker for verbs: each call ends, also while systemd re-executes or the daemon hangs."""

from __future__ import annotations

import re

from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.reporting import Pace
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, System, UnknownStateError

PAUSES = (0.2, 0.3, 0.5, 1.0)
"""Seconds between tries while systemd re-executes: it responds to no client for a moment, and drops those that wait."""
DOCKER_SECONDS, DOCKER_LONG_SECONDS, DOCKER_PULL_SECONDS = 300, 9000, 43_200
"""Docker's client waits without end for a daemon that hangs, and a step that waits holds the lock of its host."""
UNIT_SECONDS = 90
QUERY_SECONDS = 10
DOCKER_PAUSES = (0.5, 0.5, 1.0)
"""Seconds between tries while Docker's daemon restarts."""
_TRIES = 10
_NO_BUS = re.compile(
    r"onnect to .*bus|Connection reset by peer|Connection refused|Connection timed out|"
    r"Transport endpoint is not connected|onnection terminated|disconnected"
)
DOCKER_LOG = "/var/log/llamaherd/docker.log"
"""The output of pulls, of all runs."""
_LAYER = re.compile(r"([0-9a-f]{12}): ([A-Z][A-Za-z ]{1,40})")
_HERE = ("Pull complete", "Already exists")
_NO_DAEMON = re.compile("annot connect to the Docker daemon|error during connect")


def systemctl(system: System, *words: str, seconds: float = UNIT_SECONDS) -> Ended:
    """Run systemctl, again where it failed because systemd re-executes: a restart then as a start."""
    for pause in (*PAUSES, None):
        ended = system.run(["systemctl", *words], seconds=seconds)
        if ended.code in (0, TIMED_OUT) or pause is None or not _NO_BUS.search(ended.err):
            break
        system.sleep(pause)
        words = tuple("start" if word == "restart" else word for word in words)
    return ended


def query_systemctl(system: System, *words: str) -> Ended:
    """Run systemctl for an inspection. Raise UnknownStateError where systemd does not respond.

    A host that another init has booted has no systemd that could respond: systemctl fails there at once.
    """
    if system.entry("/run/systemd/system") is None:
        return system.run(["systemctl", *words], seconds=QUERY_SECONDS)
    ended = systemctl(system, *words, seconds=QUERY_SECONDS)
    if not ended.ok and (ended.code == TIMED_OUT or _NO_BUS.search(ended.err)):
        raise UnknownStateError("systemd")
    return ended


def query_docker(system: System, *words: str) -> Ended:
    """Run docker for an inspection. Raise UnknownStateError where Docker runs and does not respond for two seconds.

    A daemon that is stopped, or fails to start, has no containers that run.
    """
    for pause in (*DOCKER_PAUSES, None):
        ended = system.run(["docker", *words], seconds=QUERY_SECONDS)
        if ended.code == TIMED_OUT:
            raise UnknownStateError("Docker")
        if ended.ok or not _NO_DAEMON.search(ended.err) or not docker_runs(system):
            return ended
        if pause is not None:
            system.sleep(pause)
    raise UnknownStateError("Docker")


def docker_runs(system: System) -> bool:
    """Return whether Docker's daemon runs. Raise UnknownStateError where systemd does not respond."""
    return query_systemctl(system, "show", "-P", "ActiveState", "docker.service").out.strip() in ("active", "reloading")


def unit_properties(system: System, unit: str, *names: str) -> dict[str, str]:
    """Return properties of a unit by `systemctl show`; nothing where systemd does not respond."""
    ended = systemctl(system, "show", "-p", ",".join(names), unit)
    return dict(line.split("=", 1) for line in ended.out.splitlines() if "=" in line) if ended.ok else {}


def unit_runs(system: System, unit: str) -> bool:
    """Return whether a unit runs, starts or stops. Raise FailedError where systemd does not respond.

    As while it re-executes: that is no reason to conclude anything.
    """
    for _ in range(_TRIES):
        if state := unit_properties(system, unit, "ActiveState").get("ActiveState"):
            return state in ("active", "activating", "deactivating", "reloading")
        system.sleep(1)
    message = f"systemd does not respond, so it is unknown whether {unit} runs; nothing was changed: run again"
    raise FailedError(message)


def docker(system: System, *words: str) -> Ended:
    """Run docker."""
    is_long = words[0] in ("build", "compose", "import", "run")
    return system.run(["docker", *words], seconds=DOCKER_LONG_SECONDS if is_long else DOCKER_SECONDS)


def pull_image(system: System, image: str) -> Ended:
    """Pull an image, and report how many of its layers are there. Docker prints no bytes unless it has a terminal.

    Raise FailedError where its log cannot be written.
    """
    pace = Pace(system.now())
    states: dict[str, str] = {}
    rest = ""

    def hear(text: str) -> None:
        nonlocal rest
        *lines, rest = (rest + text).split("\n")
        states.update({found[1]: found[2] for line in lines if (found := _LAYER.fullmatch(line.rstrip()))})
        if pace.is_due(system.now()):
            done = sum(state in _HERE for state in states.values())
            of = f": {done} of {len(states)} layers" if states else ""
            system.report(f"fetching {image}{of}")

    try:
        return system.run_logged(["docker", "pull", image], DOCKER_LOG, seconds=DOCKER_PULL_SECONDS, heard=hear)
    except OSError as error:
        raise cannot_write(error) from error


def ensure_docker(system: System) -> bool:
    """Start Docker where it does not run. Return whether it does."""
    active = systemctl(system, "-q", "is-active", "docker").ok
    return active or systemctl(system, "start", "docker", seconds=180).ok
