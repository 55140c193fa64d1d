"""The report of a verification: checks of instances, of parts of the machine, and of systemd services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llamaherd.host.responses import parse_pairs
from llamaherd.onhost.servers import UnitState
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.verification import Probe
from llamaherd.plan import InstancePlan
from llamaherd.role.changes import other_settings
from llamaherd.text.terminal import MOST_HELP, one_line

PROMPT = "The three primary colours are"
"""A prompt that chat models and base models both complete."""

CHAT_SECONDS = 120
"""Seconds for one response of at most 64 tokens: a big model on a slow host manages one token a second."""


def chat_seconds(instance: InstancePlan) -> int:
    """Return the time limit of one response of an instance."""
    # One that swaps or unloads may have to load its model first.
    loads = instance.members or instance.endpoint.unloads
    return CHAT_SECONDS + (instance.server.start_seconds if loads else 0)


@dataclass(frozen=True)
class Check:
    """One check; `detail` contains what was found, and what was declared if it differs."""

    name: str
    ok: bool
    detail: str
    doubt: bool = False
    """Nothing has failed, and it may not be as meant all the same."""
    note: bool = False
    """It was not tried, or its result depends on the model alone: neither right nor wrong."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", one_line(self.detail, MOST_HELP))  # it quotes what a host printed


@dataclass(frozen=True)
class InstanceReport:
    """One instance: its declaration, its responses, and whether it is as declared."""

    name: str
    backend: str
    model: str
    engine: str
    build: str | None
    port: int
    answer: str = ""
    tokens_per_second: float | None = None
    draft_n: int | None = None
    draft_accepted: int | None = None
    checks: tuple[Check, ...] = ()
    responds: bool = False
    """Whether clients get the responses for which the server is there."""
    paused: bool = False
    """Whether `herd pause` has stopped it, so that it need not respond."""

    @property
    def ok(self) -> bool:
        """Return whether every check passed."""
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class Installed:
    """Something that was found on the host, and where."""

    what: str
    where: str


@dataclass(frozen=True)
class Report:
    """What verification found on one rig."""

    rig: str
    instances: tuple[InstanceReport, ...]
    installed: tuple[Installed, ...]
    cards: tuple[Check, ...] = ()
    driver: tuple[Check, ...] = ()
    machine: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether every check of every instance, of every GPU, of the driver and of the host passed."""
        return all(check.ok for check in self.checks)

    @property
    def checks(self) -> tuple[Check, ...]:
        """Return every check of the rig."""
        of_instances = (check for instance in self.instances for check in instance.checks)
        return (*self.driver, *self.machine, *self.cards, *of_instances)

    @property
    def summary(self) -> str:
        """Return the result in one line: `2 of 3 servers respond, 1 paused, 55 t/s`, and how many checks failed."""
        respond = [each for each in self.instances if each.responds]
        count, rates = len(self.instances), [each.tokens_per_second for each in respond if each.tokens_per_second]
        servers = (
            f"{len(respond)} of {count} server{'s'[: count != 1 or not respond]} respond{'s'[: len(respond) == 1]}"
        )
        paused = sum(each.paused for each in self.instances)
        found = [servers if count else "no server is declared", *([f"{paused} paused"] if paused else [])]
        found += [_speeds(rates)] if rates else []
        failed, doubts = sum(not check.ok for check in self.checks), sum(check.doubt for check in self.checks)
        problems = [f"{failed} check{'s'[: failed != 1]} failed"] if failed else []
        problems += [f"{doubts} check{'s'[: doubts != 1]} in doubt"] if doubts else []
        return "; ".join(", ".join(each) for each in (found, problems) if each)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"rig": self.rig, "ok": self.ok, **asdict(self)}


def _speeds(rates: Sequence[float]) -> str:
    """Return the speed of one server, or the slowest and the fastest one."""
    shown = dict.fromkeys(f"{rate:.0f}" if rate >= 9.95 else f"{rate:.1f}" for rate in (min(rates), max(rates)))
    return f"{' to '.join(shown)} t/s"


def restart_reasons(unit: ServiceState | None, wanted: str) -> list[str]:
    """Return why the process must restart to run by the planned spec."""
    if unit is None:
        return ["there is no such unit"]
    if unit.active != "active":
        return [f"it is {unit.active}"]
    return [] if unit.spec == wanted else [other_settings(unit.spec or "of nothing", wanted)]


def unit_problems(unit: ServiceState | UnitState | None) -> Iterator[str]:
    """Yield the other problems of a unit."""
    if unit and unit.enabled != "enabled":
        yield f"it is {unit.enabled or 'not enabled'}"
    if unit and unit.needs_reload:
        yield "systemd has not reloaded its file"


def service_probe(what: str, unit: str, of: str = "") -> Probe:
    """Return the probe of a unit, whose output `service_check` reads."""
    shown = ("systemctl", "show", "-p", "ActiveState", "-p", "UnitFileState", unit)
    return Probe(what, of, shown, errors=True)


def service_check(name: str, answer: str, unit: str = "") -> Check:
    """Check that a service runs, and starts after a boot, by the output of `systemctl show`. The check names `unit`."""
    pairs = parse_pairs(answer)
    active, boot = pairs.get("ActiveState", "not there"), pairs.get("UnitFileState") or "not there"
    return Check(name, (active, boot) == ("active", "enabled"), f"{unit} is {active}, {boot}".lstrip())


def private_files_check(name: str, output: str, private: tuple[str, ...], content: str) -> Check:
    """Check that other users cannot read files, by lines of mode, owner and path that begin as in `private`."""
    wrong = [line for line in output.splitlines() if not line.startswith(private)]
    detail = f"others may read {wrong[0]}: `herd up` mends that" if wrong else f"its user alone reads {content}"
    return Check(name, bool(output) and not wrong, detail if output else "there are none: `herd up`")
