"""What each engine module offers: its traits, its build options, and the command line of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.inventory.schema import CacheTypes, Instance, Version
from llamaherd.inventory.schema.key_flags import key_arguments


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How an engine that takes what a GGUF's header tells lays a model out, as far as memory hangs on it."""

    cuts_by_bytes: bool
    """GPUs get layers by their bytes, not by their number."""
    pipelines: bool
    """GPUs work on several batches at once."""
    slots_share_cells: bool
    """All slots have one cache together."""
    windows_cut_cache: bool
    """A layer that sees a window keeps no more than it."""
    heads_also_in_cache: bool
    """Prediction heads have cells in the model's cache, besides their own."""
    copies_state_to_draft: bool
    """A recurrent state is copied for each drafted token; else checkpoints are made."""
    saves_drafts: bool
    """A saved prompt has what drafts, too."""
    saves_one_at_least: bool
    """One prompt is saved, however large."""
    shares_tied_embeddings: bool
    """Embeddings that are the output too are one tensor, also on a GPU to which an override sends both."""
    caches_encoders: bool
    """Models that see the tokens of one batch alone have a cache all the same."""
    keeps_logits: bool
    """Logits of each token are kept in RAM where embeddings are on, whether or not the model computes them."""
    reserves_all_logits: bool
    """There is room for the logits of every token of a batch."""
    maps_ranges: bool
    """Of a mapped file all stays that lies between the first and the last byte which the CPU needs."""
    repacks: bool
    """Without a GPU, matrices are copied to layouts that the processor's instructions want."""
    scratch_in_cuda: bool
    """What is alive within an operation, a cache turned into f16 among it, is in CUDA's own memory."""
    makes_communicators: bool
    """NCCL's communicators are made as it starts."""
    drafts_for_one_slot: bool
    """A model that drafts does so for one slot, with a cache of the same types."""
    most_slots: int | None
    """More, and it ends."""
    tells_memory: bool
    """There is a tool that says what a server would take."""
    fits_only_when_told: bool
    """Placement is by hand, unless a flag leaves it to the engine."""
    counts_slots_itself: bool
    """Less than one slot means that it chooses how many."""
    negative_layers_mean_all: bool
    """Less than no layer on GPUs is all of them."""
    drafted: int
    """Tokens that a head drafts, unless it is said."""
    spreads_experts: bool
    """The number of layers with experts on the CPU is shared out among GPUs, and counts after all overrides."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What an engine is, to the checks, the lock, the plan and verify. The defaults are those of an image that serves
    a folder of files by itself."""

    kind: str
    arithmetic: Arithmetic | None = None
    """None where it fills its GPUs by design, and reads no GGUF."""
    images: tuple[str, ...] = ()
    """Its authors' images."""
    branch: str | None = None
    """Where its authors work."""
    numbers_builds: bool = False
    """Its tags are build numbers: `b11434`."""
    server_options: tuple[str, ...] = ()
    """Options of its build without which there is no server."""
    variants_need_libraries: bool = False
    """GGML_CPU_ALL_VARIANTS wants GGML_BACKEND_DL."""
    splits: frozenset[str] = frozenset()
    """How several GPUs may share a model."""
    cache_types_not: frozenset[str] = frozenset()
    """Types of a cache that relatives take and it does not."""
    cache_types_slow: frozenset[str] = frozenset()
    """Types of a cache that attention is computed on the CPU for."""
    cache_types_not_on_cpu: frozenset[str] = frozenset()
    """Types of a cache that end it where the CPU computes attention."""
    pairs: frozenset[str] = frozenset()
    """K-V pairs that have kernels unless a build is told more, and in its images."""
    chooses_pairs: bool = False
    """A build may name pairs; else it has those, or all."""
    mtp_for_one_slot: bool = False
    """Heads draft for a single slot."""
    help_lists_flags: bool = False
    """The `--help` of its server lists all flags."""
    divergence: str | None = None
    """Its program that compares what two caches make of a text, which is built where an instance declares `quality`."""
    loads_no_heads: tuple[str, ...] = ()
    """Versions that load no Qwen with a head, and draft not beside a projector."""
    reads_experts_for_each: bool = False
    """Experts on the CPU are read once for every drafted token."""
    answers_any_name: bool = False
    """It does not mind which model a request names."""
    swaps: bool = False
    """One server of it can have several command lines, and runs one of them at a time: see router.py."""
    health_waits: bool = False
    """Asked for its health, it answers when it has read the prompt that it is reading."""

    @property
    def reads_gguf(self) -> bool:
        """Whether it serves GGUF files, and keys tell it where their layers, experts and caches go."""
        return self.arithmetic is not None


@dataclass(frozen=True)
class Server:
    """What one server shall do: the instance as declared, and what the rest of the rig makes of it.

    `flags` are those of the pinned version of the engine, or of the newest that is known where that cannot be told.
    `overrides` are tensors to keep elsewhere, as `-ot` has them. `draft_path` is where the model lies that drafts, if
    it is not the served one; `mmproj_path`, where the vision projector does.
    """

    declared: Instance
    model_path: str
    threads: int
    listen: str
    overrides: tuple[str, ...] = ()
    api_key_file: str | None = None
    flags: Catalogue | None = None
    draft_path: str | None = None
    mmproj_path: str | None = None

    @property
    def kv(self) -> CacheTypes:
        """Types of its cache."""
        return self.declared.kv

    @property
    def gpus(self) -> int:
        """How many GPUs it sees."""
        return len(self.declared.on)

    @property
    def flash_attention(self) -> str:
        """`on`, `off` or `auto`; a quantised V cache needs it."""
        return self.declared.flash_attention or ("on" if self.kv.quantised else "auto")

    def knows(self, flag: str) -> bool:
        """Whether the engine has this flag, as far as that is known."""
        return self.flags is None or self.flags.knows(flag)

    def takes(self, flag: str, value: str) -> bool:
        """Whether the engine has this flag and its value may be this one, as far as that is known."""
        known = self.flags.find(flag) if self.flags else None
        return self.flags is None or bool(known and known.values and known.values[-1].wrong(value) is None)


@dataclass(frozen=True)
class Scratch:
    """What a container has to write to, in sizes of Docker: its /tmp, and memory that its processes share."""

    size: str
    executable: bool = False
    shared: str | None = None


class Dialect(Protocol):
    """One engine's way of saying things."""

    kind: str
    traits: Traits
    bytes_per_job: int
    """Memory that one compile job may take, so that many cores with little RAM do not swap."""
    targets: tuple[str, ...]
    lists_devices: bool
    """Whether the program that was built says which devices it sees (`--list-devices`)."""
    stop_seconds: int
    """How long a server may take to end."""
    scratch: Scratch
    """What a container has for it."""
    home: str | None
    """Where it writes what it keeps, if it does."""
    key_variable: str | None
    """The variable that tells a server its key, where no flag names a file."""
    command: tuple[str, ...]
    """What its image starts, before the arguments."""
    props_path: str | None
    """Where a server tells what it has loaded; None where its list of models is all that it tells."""
    health_status: str | None
    """What a server says of its health when it is well; None where 200 is all that it says."""
    counts_drafts: bool
    """Whether an answer tells how many of its tokens were drafted."""
    one_process: bool
    """Whether a server does all of its work in one process."""
    opens_ports: bool
    """Whether it listens on all addresses besides the one that it is told."""

    def told(self, declared: Instance, /) -> Mapping[str, str]:
        """Variables of a server that say what versions without them would refuse as a flag."""
        ...

    def probe(self, url: str, /) -> tuple[str, ...]:
        """The command line that asks a server for its health inside the engine's own image."""
        ...

    def build_options(self, architectures: tuple[str, ...]) -> Mapping[str, str]:
        """CMake cache variables; no architectures means a build for the CPU alone."""
        ...

    def version_options(self, version: Version, /) -> Mapping[str, str]:
        """CMake cache variables that say which version this is, where the engine has such."""
        ...

    def arguments(self, server: Server) -> tuple[str, ...]:
        """The server's arguments, without the program."""
        ...


class LlamaFamily:
    """A llama-server."""

    kind: str
    stop_seconds = 1
    """An idle one takes less. One that streams may hang for ever: the handler of the signal takes locks that the thread
    which it interrupted holds (tools/server/server.cpp of b11434, signal_handler)."""
    scratch = Scratch("64m")
    home: str | None = None
    key_variable: str | None = None
    command: tuple[str, ...] = ()
    props_path: str | None = "/props"
    health_status: str | None = "ok"
    counts_drafts = True
    one_process = True
    opens_ports = False

    def probe(self, url: str, /) -> tuple[str, ...]:
        """By curl, which the published images have."""
        return ("curl", "-fs", "-o", "/dev/null", url)

    def arguments(self, server: Server) -> tuple[str, ...]:
        """The server's arguments, without the program."""
        return key_arguments(self.kind, server)
