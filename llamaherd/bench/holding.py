"""GPUs that are held to one power limit after the other while their server is measured.

Whoever dies with it leaves nothing there: the host holds them to what they were held to before by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.pipes import Patience
from llamaherd.host.remote import Shell
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import Connect
from llamaherd.onhost.limits import LimitsInput
from llamaherd.text.numbers import parse_real

_SILENCE = 120
"""Seconds without a word of the host: it says one every 15."""

_WORD_SECONDS = 3600
"""Seconds until the response to one command: each of 16 GPUs takes two minutes where its driver hardly responds."""

_SPARE = 900
"""Seconds beyond what is planned: a line that was cut and nobody knows of yet."""


@dataclass(frozen=True)
class Range:
    """What a GPU is held to, and the least and the most that it takes, in watts; None where it does not tell."""

    uuid: str
    now: float | None
    least: float | None
    most: float | None

    @classmethod
    def parse(cls, line: str) -> Range:
        """The GPU of a line that begins with `gpu`."""
        _, uuid, *words = line.split(" ")
        now, least, most = (_watts(word) for word in (*words, "", "", "")[:3])
        return cls(uuid, now, least, most)

    def refuses(self, limits: Sequence[int]) -> UserError | None:
        """Why it cannot be held to all of these."""
        if self.now is None:
            return UserError(
                f"GPU {self.uuid} takes no power limit",
                "laptops, WSL and some virtual machines have none that can be set: measure without `--power`",
            )
        least, most = self.least or 0.0, self.most or float("inf")
        if wrong := next((each for each in limits if not least <= each <= most), None):
            return UserError(
                f"GPU {self.uuid} takes power limits from {least:g} to {most:g} W, and not {wrong} W",
                "name limits within these, as `--power LEAST..MOST/STEP`",
            )
        return None


class Holding:
    """From `with` to its end, GPUs can be held to power limits. What they were held to is back afterwards.

    `within` a measurement that keeps other runs off its host already. `ranges` are its GPUs as they were.
    """

    def __init__(
        self, connect: Connect, uuids: Sequence[str], limits: Sequence[int], seconds: float, *, within: bool = False
    ) -> None:
        self.ranges: tuple[Range, ...] = ()
        self._connect, self._limits = connect, tuple(limits)
        self._given = limits_input(uuids, seconds, within=within)
        self._shell: Shell | None = None
        self._lines: Iterator[str] = iter(())
        self._patience = Patience(_SILENCE, _WORD_SECONDS)

    def __enter__(self) -> Self:
        """Begin: nothing is changed yet. Raises UserError where a GPU does not take all of the limits."""
        self._shell = Shell(self._connect, fresh=True)
        try:
            self._begin_to_wait()
            self._lines = self._shell.converse("llamaherd.limits.hold", self._given, self._patience)
            while (line := self._hear("gpu", "armed")) != "armed":
                found = Range.parse(line)
                if why := found.refuses(self._limits):
                    raise why
                self.ranges += (found,)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until the host has brought back what was."""
        self._end()

    def hold(self, watts: int | None) -> None:
        """Hold each GPU to so many watts; None: to what it was held to before. Raises UserError where it is not."""
        assert self._shell
        self._begin_to_wait()
        self._shell.tell(f"hold {watts}" if watts is not None else "free")
        line = self._hear("held", "free", "failed")
        if line.startswith("failed "):
            raise UserError(line.removeprefix("failed "), "see `nvidia-smi -q -d POWER` there")

    def _begin_to_wait(self) -> None:
        """The next response has all of the time."""
        self._patience.renew(_WORD_SECONDS, "setting power limits")

    def _hear(self, *words: str) -> str:
        """The next line that begins with one of these words. Raises UserError where none comes in time."""
        for line in self._lines:
            if line.split(" ", 1)[0] in words:
                return line
        assert self._shell
        *_, why = ("it does not say why", *self._shell.complaints)
        raise RemoteError(
            f"holding GPUs to power limits ended halfway: {why[:300]}",
            "what they were held to before comes back by itself; run again to go on",
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
