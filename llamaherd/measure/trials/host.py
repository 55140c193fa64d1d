"""Start, stop and query the servers of a trial over one connection; detect out-of-memory errors."""

from __future__ import annotations

import base64
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.remote import Patience, Shell
from llamaherd.host.ssh import Forward, RemoteError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.bench.depth import Ladder
from llamaherd.measure.bench.job import WorkloadContext
from llamaherd.measure.client.endpoint import Served, count_tokens
from llamaherd.measure.client.http_client import Answer, Failure, Target
from llamaherd.measure.client.requests import Requests, RequestSpec
from llamaherd.measure.results.result import Run, Start
from llamaherd.measure.trials.units import LISTEN, Arm, ArmName, arm_unit
from llamaherd.onhost.servers import MINE, READY_TO_START, TrialsInput
from llamaherd.text.numbers import whole_number

OUT_OF_MEMORY_WORDS = {
    "out of memory": (
        "CUDA's name of cudaErrorMemoryAllocation, which ggml/src/ggml-cuda/ggml-cuda.cu prints after `CUDA error: ` "
        "and PyTorch after `CUDA `; Linux' OOM killer, mm/oom_kill.c"
    ),
    "cudaMalloc": "ggml_backend_cuda_buffer_type_alloc_buffer in ggml/src/ggml-cuda/ggml-cuda.cu",
    "failed to allocate": "ggml_gallocr_reserve_n in ggml/src/ggml-alloc.c, and llama_context in src/llama-context.cpp",
    "unable to allocate": "load_tensors in src/llama-model.cpp; ik_llama.cpp's src/llama.cpp",
    "bad_alloc": "what() of C++'s std::bad_alloc, by libstdc++",
    "for want of RAM": "roles/serve/onhost/trials.py, where systemd reports that the result of a unit is `oom-kill`",
}
"""The words, in any case, and who says each."""
_PATTERN = re.compile("|".join(map(re.escape, OUT_OF_MEMORY_WORDS)), re.IGNORECASE)


def is_out_of_memory(says: str) -> bool:
    """Whether a program that ended with these words lacked memory."""
    return bool(_PATTERN.search(says))


_SILENCE = 120
"""Seconds without a word of the host: it says one every 15."""
_WORD_SECONDS = 4 * 3600.0
"""Seconds until the response to one command: a server loads for two hours at most, and another run comes first."""
_DOES = {
    MINE: "preparing a measurement",
    READY_TO_START: "stopping what serves",
    "ready": "starting a server",
    "judged": "reading a text as a server",
    "placed": "writing a unit",
    "stopped": "stopping a server",
    "back": "starting again what served before",
}
"""What a host does before it says each word: the first of those that it may say."""
_ANSWER_SECONDS = 900.0
_LETTERS = 4
"""Of a token, roughly, where a server has no tokenizer to ask."""


class NotStartedError(UserError):
    """An arm that did not come up; `says` is what it said last."""

    def __init__(self, title: str, says: str) -> None:
        super().__init__(
            f"{title} does not start: {says or 'it says nothing'}",
            "change what its own words name; it was a unit of its own, and what served before is started again",
        )
        self.says = says


@dataclass(frozen=True)
class UnitRun:
    """How a program ended that ran in the place of an arm, and what it said last."""

    well: bool
    says: str


class ArmsHost:
    """A host that arms are started on, from `with` to its end. `back` is how long what served before took to load.

    `back` stays None where that does not serve again, or nobody knows. `salts` is what beginnings of prompts go by.
    `aside` keeps new requests off what serves: from before it is stopped until it serves again.
    """

    def __init__(
        self,
        connect: Connect,
        given: TrialsInput,
        arms: Mapping[ArmName, Arm],
        keys: Mapping[ArmName, str | None],
        salts: str,
        aside: AbstractContextManager[object] | None = None,
    ) -> None:
        self.back: float | None = None
        self._aside, self._around = aside or nullcontext(), ExitStack()
        self._connect, self._given, self._arms, self._keys, self._salts = connect, given, arms, keys, salts
        self._there = next(iter(arms.values())).instance.endpoint.port
        self._here = self._there
        self._running: Arm | None = None
        self._shell: Shell | None = None
        self._lines: Iterator[str] = iter(())
        self._patience = Patience(_SILENCE, _WORD_SECONDS)

    def __enter__(self) -> Self:
        """Begin: what serves is stopped. Raises UserError where the host does not let it."""
        forward = None
        if self._connect.host != LOCAL:
            self._here = _free_port()
            forward = Forward(self._here, LISTEN, self._there)
        self._shell = Shell(self._connect, fresh=True, forward=forward)
        try:
            self._lines = self._shell.converse("serve.trials.run", self._given, self._patience)
            if self._hear(MINE, READY_TO_START) == [MINE]:
                self._around.enter_context(self._aside)
                self._tell("go")
                self._hear(READY_TO_START)
        except BaseException:
            with self._around:
                self._shell.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End both arms, and wait until what served before serves again."""
        assert self._shell
        with self._around:
            self._wait_for_what_served(self._shell)

    def _wait_for_what_served(self, shell: Shell) -> None:
        try:
            shell.hang_up()
            word, *said = self._hear("back", "away")
            self.back = _seconds(said, 0) if word == "back" else None
        except UserError:
            self.back = None
        finally:
            shell.close()

    def start(self, name: ArmName) -> Start:
        """Start an arm, and wait until it answers. Raises NotStartedError where it does not."""
        arm = self._running = self._arms[name]
        self._tell(f"start {name}")
        word, *said = self._hear("ready", "failed")
        if word == "failed":
            raise NotStartedError(arm.title, " ".join(said[1:]))
        return Start(process=said[2] if len(said) > 2 else None, ready_seconds=_seconds(said, 1))

    def place(self, arm: Arm, longest: int) -> None:
        """Put another one in the place of the only arm: its script must be one that takes others."""
        self._place(arm_unit(arm, longest).text)
        self._arms = {**self._arms, arm.name: arm}

    def run_to_end(self, unit: str, room: int) -> UnitRun:
        """Run a unit to its end in the place of the only arm, where there are so many bytes of room for what it keeps.

        Its script must be one that has a text for it. Stop it afterwards: what it keeps goes with it.
        """
        self._place(unit)
        self._tell(f"judge {room}")
        word, *said = self._hear("judged", "failed")
        if word == "failed":
            return UnitRun(well=False, says=" ".join(said[1:]))
        try:
            return UnitRun(well=True, says=base64.b64decode("".join(said)).decode(errors="replace"))
        except ValueError:
            raise UnexpectedLineError("".join(said)) from None

    def _place(self, unit: str) -> None:
        self._tell(f"unit {base64.b64encode(unit.encode()).decode()}")
        word, *said = self._hear("placed", "failed")
        if word == "failed":
            raise UserError(" ".join(said), "look at the disk of the host")

    def stop(self) -> None:
        """Stop whichever arm runs."""
        self._running = None
        self._tell("stop")
        self._hear("stopped")

    def ask(self, wanted: RequestSpec) -> Answer | Failure:
        """One streamed answer of the arm that runs."""
        arm = self._arm
        chat = arm.instance.endpoint.chat_path
        return Requests(self._target, chat, arm.instance.endpoint.models[0], self._salts).send(wanted, _ANSWER_SECONDS)

    def climb(self, depth: int) -> list[Run]:
        """Have the arm that runs read so many tokens at once, and write there: runs of either. Raises UserError."""
        endpoint, target = self._arm.instance.endpoint, self._target
        served = Served(target, target, endpoint.chat_path, endpoint.models[0], native=True)
        return [run for _, run in Ladder((depth,)).runs(WorkloadContext(served, self._salts, self.clock))]

    def count(self, text: str) -> int:
        """Tokens of a text, by the tokenizer of the arm that runs."""
        counted = count_tokens(self._target, self._arm.instance.endpoint.models[0], text)
        return len(text) // _LETTERS if counted is None else counted

    def clock(self) -> float:
        """Seconds, from whenever on."""
        return time.monotonic()

    @property
    def _arm(self) -> Arm:
        assert self._running
        return self._running

    @property
    def _target(self) -> Target:
        return Target(f"http://{LISTEN}:{self._here}", self._keys[self._arm.name])

    def _tell(self, line: str) -> None:
        assert self._shell
        self._shell.tell(line)

    def _hear(self, *words: str) -> list[str]:
        """The next line that begins with one of these words. Raises UserError where none comes in time."""
        self._patience.renew(_WORD_SECONDS, _DOES[words[0]])
        for line in self._lines:
            said = line.split(" ")
            if said[0] in words:
                return said
        assert self._shell
        *_, why = ("it does not report why", *self._shell.complaints)
        raise RemoteError(
            f"measuring ended halfway: {why[:300]}", "what served before comes back by itself; run again to go on"
        )


def _free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind((LISTEN, 0))
        port: int = one.getsockname()[1]
        return port


def _seconds(said: Sequence[str], at: int) -> float:
    """Return the seconds of a word of milliseconds. Raises UnaskedError where there is no such word."""
    milliseconds = whole_number(said[at]) if len(said) > at else None
    if milliseconds is None:
        raise UnexpectedLineError(" ".join(said))
    return milliseconds / 1000
