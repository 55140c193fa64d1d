"""The interface of an engine module: its traits, its build options, and the command line of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.inventory.schema import Instance, Version


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """The properties of an engine that decide how much memory a GGUF model takes."""

    cuts_by_bytes: bool
    """Layers are shared among GPUs by their bytes, not by their number."""
    pipelines: bool
    """GPUs work on several batches at once."""
    slots_share_cells: bool
    """All slots have one cache together."""
    windows_cut_cache: bool
    """A layer with a sliding window caches no more than the window."""
    heads_also_in_cache: bool
    """Prediction heads have cells in the model's cache, besides their own."""
    copies_state_to_draft: bool
    """A recurrent state is copied for each drafted token; else checkpoints are made."""
    saves_drafts: bool
    """A saved prompt also contains the state of the model that drafts."""
    saves_one_at_least: bool
    """At least one prompt is saved, however large."""
    shares_tied_embeddings: bool
    """Embeddings that are the output too are one tensor, also on a GPU to which an override sends both."""
    caches_encoders: bool
    """Models that attend to the tokens of one batch alone have a cache, too."""
    keeps_logits: bool
    """Logits of each token are kept in RAM where embeddings are on, whether or not the model computes them."""
    reserves_all_logits: bool
    """There is room for the logits of every token of a batch."""
    maps_ranges: bool
    """Of a mapped file, all bytes from the first to the last that the CPU needs stay in RAM."""
    repacks: bool
    """Without a GPU, matrices are copied to layouts for the processor's instructions."""
    scratch_in_cuda: bool
    """Temporary data of an operation, such as a cache converted to f16, is in CUDA's own memory."""
    makes_communicators: bool
    """NCCL's communicators are created at the start."""
    drafts_for_one_slot: bool
    """A model drafts for one slot only, with a cache of the same types."""
    most_slots: int | None
    """The most slots with which the server starts."""
    reports_memory: bool
    """The engine has a tool that prints how much memory a server would take."""
    fits_on_request: bool
    """The engine chooses the placement only if a flag is set."""
    counts_slots_itself: bool
    """With less than one slot, the engine chooses how many."""
    negative_layers_mean_all: bool
    """A negative number of layers on GPUs means all layers."""
    drafted: int
    """Tokens that a prediction head drafts by default."""
    spreads_experts: bool
    """The number of layers with experts on the CPU is shared out among GPUs, and counts after all overrides."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The properties of an engine for the checks, the lock, the plan and verify. The defaults are those of an image
    that serves a folder of files."""

    arithmetic: Arithmetic | None = None
    """None for an engine that fills its GPUs by design and reads no GGUF."""
    images: tuple[str, ...] = ()
    """The images that its authors publish."""
    branch: str | None = None
    """The branch on which its authors work."""
    numbers_builds: bool = False
    """Its tags are build numbers: `b11434`."""
    server_options: tuple[str, ...] = ()
    """Options of its build without which there is no server."""
    variants_need_libraries: bool = False
    """GGML_CPU_ALL_VARIANTS requires GGML_BACKEND_DL."""
    splits: frozenset[str] = frozenset()
    """The split modes for several GPUs."""
    cache_types_not: frozenset[str] = frozenset()
    """Types of a cache that related engines accept and this engine refuses."""
    cache_types_slow: frozenset[str] = frozenset()
    """Types of a cache for which attention is computed on the CPU."""
    cache_types_not_on_cpu: frozenset[str] = frozenset()
    """Types of a cache that end the server if the CPU computes attention."""
    pairs: frozenset[str] = frozenset()
    """K-V pairs that have kernels in a default build and in the images."""
    chooses_pairs: bool = False
    """A build can name pairs. Otherwise it has the default pairs, or all."""
    mtp_for_one_slot: bool = False
    """Prediction heads draft for a single slot only."""
    help_lists_flags: bool = False
    """The `--help` of its server lists all flags."""
    divergence: str | None = None
    """Its program that compares the results of two caches for a text. Built if an instance declares `quality`."""
    loads_no_heads: tuple[str, ...] = ()
    """Versions that load no Qwen with a head, and do not draft if a projector is loaded."""
    reads_experts_for_each: bool = False
    """Experts on the CPU are read once for every drafted token."""
    answers_any_name: bool = False
    """The server accepts any model name in a request."""
    swaps: bool = False
    """One server can have several command lines and run one of them at a time: see llama_cpp.py."""
    health_waits: bool = False
    """A health check responds only after the server has read the current prompt."""

    @property
    def reads_gguf(self) -> bool:
        """True if the engine serves GGUF files, and keys place their layers, experts and caches."""
        return self.arithmetic is not None


@dataclass(frozen=True)
class Server:
    """One server: the declared instance, and the values that the rest of the rig adds.

    `flags` are those of the pinned version of the engine, or those that are assumed for an unknown version.
    `overrides` are values of `-ot`, for tensors to keep elsewhere. `draft_path` is the path of the draft model, if that
    is not the served model; `mmproj_path` is the path of the vision projector.
    """

    declared: Instance
    model_path: str
    threads: int
    listen: str
    flags: Catalogue
    overrides: tuple[str, ...] = ()
    api_key_file: str | None = None
    draft_path: str | None = None
    mmproj_path: str | None = None


@dataclass(frozen=True)
class Scratch:
    """The writable space of a container, in sizes of Docker: its /tmp, and memory that its processes share."""

    size: str
    executable: bool = False
    shared: str | None = None


class Dialect:
    """The commands, variables and options of one engine. The defaults are those of a llama-server."""

    kind: str
    traits: Traits
    bytes_per_job = 0
    """Memory that one compile job may take. It keeps machines with many cores and little RAM from swapping."""
    targets: tuple[str, ...] = ()
    lists_devices = False
    """True if the built program prints its devices (`--list-devices`)."""
    stop_seconds = 1
    """The seconds that a server may take to end: an idle server takes less. A server that streams can hang for ever,
    because its signal handler takes locks that the interrupted thread holds (tools/server/server.cpp of b11434,
    signal_handler)."""
    scratch = Scratch("64m")
    """The writable space of a container of this engine."""
    home: str | None = None
    """The folder in which it keeps files, if it keeps any."""
    key_variable: str | None = None
    """The variable that holds a server's key, if no flag names a file."""
    command: tuple[str, ...] = ()
    """The program in the image, before the arguments."""
    props_path: str | None = "/props"
    """The path that returns what a server has loaded; None if its list of models is all."""
    health_status: str | None = "ok"
    """The status in a healthy server's response; None if HTTP status 200 is all."""
    counts_drafts = True
    """True if a response contains the number of drafted tokens."""
    one_process = True
    """True if a server does all of its work in one process."""
    opens_ports = False
    """True if it listens on all addresses besides the configured one."""

    def variables(self, _declared: Instance, /) -> Mapping[str, str]:
        """Return variables of a server that replace flags which some versions refuse."""
        return {}

    def probe(self, url: str, /) -> tuple[str, ...]:
        """Return the command that checks a server's health inside the engine's own image: curl, if it contains that."""
        return ("curl", "-fs", "-o", "/dev/null", url)

    def build_options(self, _architectures: tuple[str, ...], /) -> Mapping[str, str]:
        """Return the CMake cache variables; without architectures, those of a build for the CPU alone."""
        return {}

    def version_options(self, _version: Version, /) -> Mapping[str, str]:
        """Return the CMake cache variables that set the version, if the engine has any."""
        return {}
