"""Define what a measurement consists of, and reserve its host: the tunnel, the lock, and power limits of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import Patience, Shell
from llamaherd.host.ssh import Forward, RemoteError
from llamaherd.host.tunnel import forwarding_error, free_port
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.layout import LOCKS
from llamaherd.measure.client.http_client import Failure, Target
from llamaherd.measure.client.requests import MeasurementPart, Series, Served, long_text
from llamaherd.measure.meter.meter import Obstacle
from llamaherd.measure.results.result import Condition, Result, Run
from llamaherd.onhost.reservation import HELD, LimitsInput, MeasurementLockInput
from llamaherd.plan import InstancePlan, Plan
from llamaherd.text.numbers import parse_real
from llamaherd.text.quoting import url_host


def approximate_text(tokens: int) -> str:
    """Return a long text, estimated at four letters a token."""
    return long_text(4 * tokens)


@dataclass(frozen=True)
class WorkloadContext:
    """A server, the session that its cache busters derive from, and seconds since the measurement began.

    `text_of` returns a long text of about so many tokens.
    """

    served: Served
    session: str
    clock: Callable[[], float]
    text_of: Callable[[int], str] = approximate_text


class Workload(MeasurementPart, Protocol):
    """Runs under some conditions, each by its place among them."""

    @property
    def one_by_one(self) -> bool:
        """True if runs follow each other: then the host can be inspected for other programs in between."""
        ...

    def runs(self, context: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """Yield the runs, one by one. Raise UserError if the server cannot be measured this way."""
        ...


def seconds_left(share: float, seconds: float) -> float:
    """Estimate how much longer a workload takes, of which a share took some seconds."""
    return seconds * (1 - share) / share if share > 0 else 0.0


def workload_error(what: str, failed: Failure) -> UserError:
    """Return the error that ends a workload, with the reason."""
    return UserError(f"{what}: {failed.message}", failed.help)


NEVER_OVERRULED = ("server-down", "not-as-planned", "port-taken")
"""With these, a server other than the declared one would be measured: they cannot be overruled."""

Drain = Callable[[Callable[[str], None]], AbstractContextManager[None]]
"""Keeps other clients' new requests off a server while it is measured, and reports that."""


@dataclass(frozen=True)
class Job:
    """An instance of a rig, and how long its measurement may take. `anyway` overrules obstacles, except some.

    `group` is the server that it shares with other models, if it belongs to a group.
    """

    connect: Connect
    plan: Plan
    instance: InstancePlan
    results: Path
    seconds: float
    author: str
    anyway: bool = False
    drain: Drain = lambda _: nullcontext()
    group: InstancePlan | None = None

    def let_through(self, found: Sequence[Obstacle]) -> None:
        """Raise ObstacleError if there is an obstacle that is not overruled, or cannot be."""
        if any(not self.anyway or each.code in NEVER_OVERRULED for each in found):
            raise ObstacleError(found)


@dataclass(frozen=True)
class ServerProfile:
    """What a warm server is like: about how fast it is, and how many tokens a slot has.

    `text_of` returns a long text of so many tokens. `before` are the conditions of a measurement that can be resumed,
    `last` those of the last complete one.
    """

    seconds: float
    seed: str
    context: int
    decode: float | None
    prefill: float | None
    text_of: Callable[[int], str]
    before: tuple[Condition, ...] = ()
    last: tuple[Condition, ...] = ()


MakeSeries = Callable[[ServerProfile], Sequence[Series]]


class ProgressReporter(Protocol):
    """The receiver of progress and messages."""

    def report(self, text: str) -> None:
        """Print a line."""

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        """Report how much is done, and what is being done."""


@dataclass(frozen=True)
class SavedResult:
    """A result, and its file."""

    path: Path
    result: Result


class ObstacleError(UserError):
    """The obstacles for which a server cannot be measured now."""

    def __init__(self, obstacles: Sequence[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        super().__init__(obstacles[0].message, obstacles[0].help)


_LOCK_SECONDS = 60
_LETTERS = 200
"""Letters of the holder's name."""


class ServerConnection:
    """A connection to the server of an instance: from `with` to its end, `target` is its address here.

    `client` is where the requests come from: the host itself, or the machine that reaches it by SSH.
    """

    target: Target

    def __init__(self, connect: Connect, instance: InstancePlan, author: str) -> None:
        self._connect, self._endpoint = connect, instance.endpoint
        self._author = " ".join(author.split())[:_LETTERS]
        self._shell: Shell | None = None
        self._lines: Iterator[str] = iter(())
        self._patience = Patience.within(_LOCK_SECONDS, "taking the lock of measurements")
        self.client: Literal["host", "controller"] = "host" if connect.host == LOCAL else "controller"

    def __enter__(self) -> Self:
        """Connect. Raise RemoteError, and UserError without a key, or if another measurement runs."""
        key = self._key()
        if self.client == "host":
            self.target = Target(self._endpoint.url(), key)
            forward = None
        else:
            port = free_port()
            self.target = Target(f"http://127.0.0.1:{port}", key)
            forward = Forward(port, url_host(self._endpoint.local_address), self._endpoint.port)
        self._shell = Shell(self._connect, fresh=True, forward=forward)
        try:
            self._keep_others_off(self._shell)
        except BaseException:
            self._shell.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Release the host."""
        if self._shell:
            self._shell.hang_up()
            self._shell.close()

    def refused(self) -> UserError | None:
        """Return the error that the host's SSH server forwards no ports, if that is why a request failed.

        It ends the connection.
        """
        if self._shell is None:
            return None
        self._shell.hang_up()
        self._patience.renew(_LOCK_SECONDS)
        with suppress(UserError):
            list(self._lines)
        return forwarding_error(self._connect, self._shell.complaints)

    def _key(self) -> str | None:
        try:
            return read_key(self._endpoint.key) if self._endpoint.key else None
        except UnreadableKeyError as error:
            raise UserError(str(error), "put the key there") from None

    def _keep_others_off(self, shell: Shell) -> None:
        # Kept: its lines are read until the connection ends.
        self._patience.renew(_LOCK_SECONDS)
        self._lines = shell.converse(
            "llamaherd.reservation.hold_measurement", MeasurementLockInput(self._author), self._patience
        )
        if next(self._lines, None) == HELD:
            return
        *_, why = ("it does not report why", *shell.complaints)
        raise RemoteError(f"the lock of this host cannot be taken: {why}", f"inspect {LOCKS} there")


_SILENCE = 120
"""Seconds without a line from the host: it sends one every 15."""

_WORD_SECONDS = 3600
"""Seconds until the response to one command: each of 16 GPUs takes two minutes if its driver hardly responds."""

_SPARE = 900
"""Seconds beyond the planned time, for a connection that broke unnoticed."""


@dataclass(frozen=True)
class PowerRange:
    """The power limit of a GPU, and the least and the most that it accepts, in watts; None if it reports none."""

    uuid: str
    now: float | None
    least: float | None
    most: float | None

    @classmethod
    def parse(cls, line: str) -> PowerRange:
        """Parse the GPU of a line that begins with `gpu`."""
        _, uuid, *words = line.split(" ")
        now, least, most = (_watts(word) for word in (*words, "", "", "")[:3])
        return cls(uuid, now, least, most)

    def refuses(self, limits: Sequence[int]) -> UserError | None:
        """Return why it does not accept all of these limits; None if it does."""
        if self.now is None:
            return UserError(
                f"GPU {self.uuid} takes no power limit",
                "laptops, WSL and some virtual machines have none that can be set: measure without `--power`",
            )
        least, most = self.least or 0.0, self.most or float("inf")
        if wrong := next((each for each in limits if not least <= each <= most), None):
            return UserError(
                f"GPU {self.uuid} takes power limits from {least:g} to {most:g} W, not {wrong} W",
                "name limits within these, as `--power LEAST..MOST/STEP`",
            )
        return None


class PowerHold:
    """Power limits of GPUs: from `with` to its end, they can be set; then the former limits are restored.

    `within`: a measurement keeps other runs off its host already. `ranges` are the limits before.
    """

    def __init__(
        self, connect: Connect, uuids: Sequence[str], limits: Sequence[int], seconds: float, *, within: bool = False
    ) -> None:
        self.ranges: tuple[PowerRange, ...] = ()
        self._connect, self._limits = connect, tuple(limits)
        self._given = limits_input(uuids, seconds, within=within)
        self._shell: Shell | None = None
        self._lines: Iterator[str] = iter(())
        self._patience = Patience(_SILENCE, _WORD_SECONDS)

    def __enter__(self) -> Self:
        """Begin, and change nothing yet. Raise UserError if a GPU does not accept all of the limits."""
        self._shell = Shell(self._connect, fresh=True)
        try:
            self._begin_to_wait()
            self._lines = self._shell.converse("llamaherd.reservation.hold_limits", self._given, self._patience)
            while (line := self._hear("gpu", "armed")) != "armed":
                found = PowerRange.parse(line)
                if why := found.refuses(self._limits):
                    raise why
                self.ranges += (found,)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until the host has restored the limits."""
        self._end()

    def hold(self, watts: int | None) -> None:
        """Set the limit of each GPU; None: restore the former one. Raise UserError if that fails."""
        assert self._shell
        self._begin_to_wait()
        self._shell.tell(f"hold {watts}" if watts is not None else "free")
        line = self._hear("held", "free", "failed")
        if line.startswith("failed "):
            raise UserError(line.removeprefix("failed "), "see `nvidia-smi -q -d POWER` there")

    def _begin_to_wait(self) -> None:
        """Give the next response the full time."""
        self._patience.renew(_WORD_SECONDS, "setting power limits")

    def _hear(self, *words: str) -> str:
        """Return the next line that begins with one of these words. Raise UserError if none arrives in time."""
        for line in self._lines:
            if line.split(" ", 1)[0] in words:
                return line
        assert self._shell
        *_, why = ("no error message", *self._shell.complaints)
        raise RemoteError(
            f"holding GPUs to power limits ended halfway: {why[:300]}",
            "the host restores the former limits itself; run again to resume",
        )

    def _end(self) -> None:
        assert self._shell
        self._shell.hang_up()
        self._begin_to_wait()
        try:
            for _ in self._lines:
                pass
        except UserError:
            pass  # the host restores them alone
        finally:
            self._shell.close()


def limits_input(uuids: Sequence[str], seconds: float, *, within: bool = False) -> LimitsInput:
    """Return the input of the verb that sets limits of these GPUs, for so many seconds at most.

    `within`: a measurement runs, and its own connection holds the lock of the host.
    """
    return LimitsInput(tuple(uuids), int(seconds) + _SPARE, within)


def _watts(word: str) -> float | None:
    try:
        return parse_real(word)
    except ValueError:
        return None
