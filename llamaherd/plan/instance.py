"""What a plan holds of an instance: its server, and what is expected of it."""

from __future__ import annotations

import hashlib

from llamaherd.inventory.schema import DRAIN_SECONDS, Backend, Expect
from llamaherd.layout import BUILDS
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.endpoint import Endpoint
from llamaherd.plan.member import MemberPlan
from llamaherd.plan.memory import Estimate
from llamaherd.plan.reading import DivergencePlan
from llamaherd.plan.server import ServerSpec

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
