"""The planned instances: their servers, members, memory, gates and expected speeds."""

from __future__ import annotations

import hashlib
from typing import Literal

from llamaherd.engines.divergence import Reading
from llamaherd.inventory.schema import DRAIN_SECONDS, Backend, Expect
from llamaherd.layout import BUILDS
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.server import Endpoint, ServerSpec

RAM = "RAM"
"""The host's memory, among the places where something is held."""


class Holds(Planned):
    """What one GPU, or the RAM (`where` is `RAM`), holds of one instance, in bytes. `size` is what there is of it.

    `draft` is what speculation adds: the head's weights, its cache, its buffers and the copies of the state. `cuda` is
    what CUDA takes of a GPU besides all that: its context, kernels and scratch memory. In RAM it is what the server
    holds for itself there, and pages of a mapped file between those that it needs.
    """

    where: str
    size: int
    weights: int
    kv: int
    state: int
    compute: int
    draft: int
    cuda: int = 0

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.kv + self.state + self.compute + self.draft + self.cuda


class Grows(Planned):
    """The most that comes to a server's RAM while it works, in bytes; `prompts` is None without a limit."""

    prompts: int | None = 0
    checkpoints: int = 0


class Estimate(Planned):
    """What an instance takes. `source` is who says so: `arithmetic`, or `engine`, which was asked.

    `resident` is what its RAM cannot do without, in bytes: no page of a mapped file, and nothing of its programs. None
    where that is not known, as in plans of earlier versions.
    """

    source: Literal["arithmetic", "engine"]
    holds: tuple[Holds, ...]
    doubts: tuple[str, ...] = ()
    grows: Grows = Grows()
    resident: int | None = None


class MemberPlan(Planned):
    """One of the instances that swap. `arguments` are those of its own server, if it had one.

    `model_folder` and `model_path` are where its model lies, `draft_folder` that of a model of its own that drafts.
    """

    name: str
    model: str
    model_folder: str
    model_path: str
    draft_folder: str | None = None
    drafts: bool = False
    mtp: int = 0
    context: int
    slots: int
    threads: int
    arguments: tuple[str, ...]
    expect: Expect | None = None
    memory: Estimate | None = None


class DivergencePlan(Planned):
    """How far what a server says is from what another one says: `tool` tells it, a program of its build.

    `says` are words of the server's command line that decide what it says, `more` those that decide where and how fast;
    the tool takes both. `readings` are ways in which a text could be read with its model, the best one first.
    """

    tool: str
    says: tuple[str, ...]
    more: tuple[str, ...]
    vocabulary: int
    readings: tuple[Reading, ...]


SHARE_OF_EXPECTED = 0.5
"""Of what its owner expects. Half of it is no bad day: a server that lost its GPU answers all the same."""
SHARE_OF_MEASURED = 0.7
"""Of what it was measured to do here: `roles/serve/onhost/speed.py` takes the same share of what it has measured."""


def lowest_speed(expected: float | None, measured: float | None = None) -> float | None:
    """Tokens a second of one request below which a server is too slow; None where nothing is known of it.

    What its owner expects counts for more than what was measured.
    """
    if expected:
        return expected * SHARE_OF_EXPECTED
    return measured * SHARE_OF_MEASURED if measured else None


_ENGINES_VARIABLES = "^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_"
"""What engines, their libraries and the loader of programs go by."""


class GatePlan(Planned):
    """What a change may cost: shares of writing and of reading, and how far what it says may be from what it said.

    It is measured for so many seconds.
    """

    decode: float | None = None
    prefill: float | None = None
    kld: float | None = None
    seconds: int


class InstancePlan(Planned):
    """An instance: its server, what it is made of, and what is expected of it.

    `spec` hashes all that a restart is needed for, which is the text of `file`. `draft_folder` is that of the model
    which drafts for it, where that is one of its own. Of a group, `members` are its instances, the first of them also
    what is loaded first, and what stands here of a model; `preset` is the file that its server reads.
    """

    name: str
    backend: Backend
    engine: str
    build: str | None
    model: str
    model_folder: str
    model_path: str
    context: int
    mtp: int
    draft_folder: str | None = None
    threads: int
    server: ServerSpec
    expect: Expect | None = None
    gate: GatePlan | None = None
    divergence: DivergencePlan | None = None
    drain: int = DRAIN_SECONDS
    memory: Estimate | None = None
    spec: str
    file: TextFile
    members: tuple[MemberPlan, ...] = ()
    preset: TextFile | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where it is reached."""
        return self.server.endpoint

    @property
    def service(self) -> str:
        """Its name to systemd and Docker."""
        return self.server.service

    @property
    def build_folder(self) -> str | None:
        """Where its engine lies, if it was built here."""
        return str(BUILDS / self.build) if self.build else None

    @property
    def reads(self) -> tuple[str, ...]:
        """Files of the host that its user must be able to read: in a container, the program is the image's."""
        program = self.server.program if self.build and self.backend == "systemd" else None
        models = [each.model_path for each in self.members] or [self.model_path]
        preset = self.preset.path if self.preset else None
        return tuple(path for path in (program, preset, *models, self.key_file) if path)

    @property
    def command_line(self) -> str:
        """The sha256 of its process's arguments, as /proc has them."""
        words = (self.server.program or "", *self.server.arguments)
        return hashlib.sha256("".join(f"{word}\0" for word in words).encode()).hexdigest()

    @property
    def variables(self) -> tuple[str, ...]:
        """What its process must have of variables, NAME=VALUE."""
        return (f"LLAMAHERD_SPEC={self.spec}",) * (self.backend == "systemd") + tuple(
            f"{name}={value}" for name, value in self.server.environment.items()
        )

    @property
    def strange_variables(self) -> str:
        """Names of variables that it must not have beside them, as an expression: a pulled image brings its own."""
        return _ENGINES_VARIABLES if self.build else ""

    @property
    def shared_drop_ins(self) -> tuple[str, ...]:
        """Folders of drop-ins for other units as well: for all services, and for those whose names begin like this."""
        parts = self.service.split("-")
        return ("service.d", *("-".join(parts[:n]) + "-.service.d" for n in range(1, len(parts))))

    @property
    def drafts(self) -> bool:
        """Whether anything drafts for it."""
        return bool(self.mtp or self.draft_folder)

    @property
    def key_file(self) -> str | None:
        """Where the API key lies on the host, if there is one."""
        return self.server.key.path if self.server.key else None
