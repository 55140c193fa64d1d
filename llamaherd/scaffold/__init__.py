"""The files of `herd init`: a fleet folder, and a rig from an inspection of its host, with a model that fits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.header import Header
from llamaherd.inventory.json_schema import SCHEMAS, schema_text
from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.inventory.yaml_file import DEFAULTS, parse_yaml
from llamaherd.memory.facts import rig_facts
from llamaherd.onhost.hardware import FoundHost
from llamaherd.pipeline.fleet_files import is_fleet_file
from llamaherd.reference.toolchains import GLIBC
from llamaherd.render import render
from llamaherd.resources import EXAMPLES
from llamaherd.scaffold.hardware import ScaffoldError, WrittenGpu, written_gpus
from llamaherd.text.numbers import show_size
from llamaherd.text.quoting import Written, yaml_value

_SPARE_DISK = 20 * 10**9
"""Bytes of the disk that stay free for the engine's build and its CUDA toolkit."""


@dataclass(frozen=True)
class Proposal:
    """A model to start with: its name in the rig, its repository and quant, and how its instance runs.

    `least` is the memory in MiB below which a GPU is too small for the file: its header is not read then. `on_gpu` is
    False if the instance runs on the CPU.
    """

    name: str
    hf: str
    quant: str
    context: int
    mtp: int = 0
    least: int = 0
    on_gpu: bool = True

    @property
    def on_hub(self) -> str:
        """The model as `herd fit` names it."""
        return f"{self.hf}:{self.quant}"


SMALL = Proposal("gemma", "bartowski/google_gemma-3-4b-it-GGUF", "Q4_K_M", context=8192)
"""The model of a host without a large GPU, or without a hub."""

# Files of 22.4 and 17.2 GB, whose speeds are in docs/rigs/wsl.md and docs/rigs/one.md.
LARGE = (
    Proposal("35b", "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "UD-Q4_K_XL", context=32_768, mtp=2, least=22_000),
    Proposal("35b", "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "UD-Q3_K_XL", context=32_768, mtp=2, least=17_000),
)

ReadHeader = Callable[[str], Header]
"""Returns the header of `OWNER/NAME:QUANT`. Raises UserError."""


def propose_model(
    found: FoundHost, make_rig: Callable[[Proposal], Rig], read_header: ReadHeader, say: Callable[[str], None]
) -> Proposal:
    """Return the first model that fits the host, from the largest to the smallest; SMALL if no header can be read.

    `make_rig` returns the rig with a proposal, whose memory is then calculated as `herd check` does.
    """
    gpus = written_gpus(found)
    largest = max((gpu.memory for gpu in gpus), default=0) if all(gpu.known for gpu in gpus) else 0
    tried = [each for each in LARGE if largest >= each.least]
    try:
        for each in (*tried, *([SMALL] if largest else [])):
            say(f"reading the header of {each.on_hub}")
            header = read_header(each.on_hub)
            if fits_rig(make_rig(each), header, found.free):
                return each
    except UserError as error:
        say(f"proposing the small model {SMALL.on_hub}: {error.message}")
        return SMALL
    return replace(SMALL, on_gpu=False)


def fits_rig(rig: Rig, header: Header, free: int) -> bool:
    """Return whether the only instance of a rig fits its GPUs, its RAM and so many bytes of its disk (0: unknown)."""
    (sized,) = rig_facts(rig, dict.fromkeys(rig.models, header)).sized.values() or (None,)
    weights = sum(tensor.bytes for tensor in header.each)
    return sized is not None and sized.fit.fits and (not free or weights + _SPARE_DISK <= free)


_SOLD = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 384, 512, 768, 1024, 1536)
"""GB of memory that machines are sold with."""

_REACHED = {
    "host": "give a name or address, such as `duo.lan`, or a `Host` of ~/.ssh/config",
    "user": "give the name of a user, such as `tom`",
    "port": "give a number from 1 to 65535; sshd's is 22",
}

_MISCOMPILES = "13.2"
"""This CUDA makes gibberish of IQ3 and IQ2 quants (ggml-org/llama.cpp#21255)."""


def rig_yaml(
    found: FoundHost, name: str, connect: Connect, measured: Sequence[str] = (), proposal: Proposal | None = SMALL
) -> str:
    """Return the text of a whole rig: the hardware of its host, an engine, and the proposed model with an instance.

    Without a proposal, it has no model and no instance. `measured` are lines about the best settings of similar rigs:
    they become a comment, and nothing else.
    """
    gpus = written_gpus(found)
    known = dict(zip(gpu_names(gpus), gpus, strict=True)) if all(gpu.known for gpu in gpus) else {}
    largest = max(known, key=lambda each: known[each].memory, default=None)
    return render(
        "scaffold/rig.yaml.j2",
        rig=yaml_scalar(name),
        local=connect.host == LOCAL,
        host=yaml_scalar(connect.host),
        port=connect.port,
        user=yaml_scalar(connect.user) if connect.user else None,
        found=found,
        os=yaml_scalar(found.os),
        cores=found.cores or found.threads,
        ram=round_ram(found.memory),
        free=show_size(found.free) if found.free else None,
        cards={yaml_scalar(name): (gpu, yaml_scalar(gpu.model)) for name, gpu in known.items()},
        unknown=() if known else gpus,
        cuda=cuda_for(found, gpus),
        driver=found.cards[0].driver if found.cards else None,
        prebuilt=is_prebuilt_better(found),
        largest=yaml_scalar(largest) if largest and proposal and proposal.on_gpu else None,
        model=yaml_scalar(proposal.name) if proposal else None,
        proposal=proposal,
        measured=measured,
    )


def parse_rig(text: str) -> Rig:
    """Return the rig of a text that `rig_yaml` has returned."""
    return Rig.model_validate(parse_yaml(Path("rig.yaml"), str(text)).data)


def connect_to(host: str, user: str | None, port: int | None) -> Connect:
    """Return the connection to a host by the given name, user and port. Raise ScaffoldError."""
    try:
        return Connect(host=host, user=user, port=port)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # Of two that are wrong together, the error names the one to change.
        what = str(first["loc"][0] if first["loc"] else first["ctx"]["at"])
        value = {"host": host, "user": user, "port": port}[what]
        with_port = re.fullmatch(r"(?:.*@)?[^:]+:(\d{1,5})", host) if what == "host" else None
        help_ = f"write the port as `--port {with_port[1]}`" if with_port else _REACHED[what]
        raise ScaffoldError(f"{value!r} cannot be the {what} of a rig", help_) from None


def rig_name(given: str | None, host: str, hostname: str = "") -> str:
    """Return the name of the rig: the given one, or that of its host, `duo` for `Duo.lan`. Raise ScaffoldError.

    `hostname` is the host's own name, for a host that is named by its address, or is this machine.
    """
    if given is None:
        host = hostname or host if host == LOCAL or re.fullmatch(r"[\d.]+|.*:.*", host) else host
        short = host if re.fullmatch(r"[\d.]+", host) else host.partition(".")[0]
        name = re.sub(r"[^a-z0-9._-]+", "-", short.lower()).strip("._-")[:40]
        return name if _free(name) else "rig"
    if not _free(given):
        help_ = "names have up to 40 lower-case letters, digits, dots and dashes, and `defaults.yaml` is not a rig"
        raise ScaffoldError(f"a rig cannot be called `{given}`", help_)
    return given


def _free(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", name) is not None and f"{name}.yaml" != DEFAULTS


def yaml_scalar(text: str) -> Written:
    """Return a text as YAML: in quotes if it would be something else without."""
    plain = re.fullmatch(r"[A-Za-z]([A-Za-z0-9 ._/-]*[A-Za-z0-9])?", text) and yaml.safe_load(text) == text
    return Written(text) if plain else yaml_value(text)


def round_ram(memory: int) -> str:
    """Return memory in the usual size: `64GB` for the 62.6 GiB that a kernel leaves of 64 GiB.

    Never more than there is.
    """
    gigabytes = memory / 10**9
    sold = [size for size in _SOLD if 0.9 * gigabytes <= size <= gigabytes]
    if sold:
        return f"{sold[-1]}GB"
    return f"{int(gigabytes)}GB" if gigabytes >= 1 else f"{memory // 10**6}MB"


def gpu_names(gpus: Sequence[WrittenGpu]) -> list[str]:
    """Return a name for each: `3090-ti` if there is one of its kind, `3090-1` and `3090-2` if there are two."""
    short = [re.sub(r"[^a-z0-9]+", "-", re.sub(r"^[RG]TX ", "", c.model).lower()).strip("-")[:36] for c in gpus]
    short = [name or "card" for name in short]
    many = Counter(short)
    given: Counter[str] = Counter()
    names = []
    for each in short:
        given[each] += 1
        names.append(f"{each}-{given[each]}" if many[each] > 1 else each)
    return names


def cuda_for(found: FoundHost, gpus: Sequence[WrittenGpu]) -> str:
    """Return the newest installed toolkit that supports the driver and all GPUs, or the toolkit to install.

    Bounds: CUDA 13 needs driver 580 and GPUs from 75 on; 12.8 is the first for 100 and later, 11.8 for 89 and 90
    (NVIDIA's compatibility guide; `nvcc --list-gpu-code` of each).
    """
    architectures = [gpu.sm for gpu in gpus if gpu.sm] or [86]
    branch = re.match(r"\d+", found.cards[0].driver) if found.cards else None
    least = (12, 8) if max(architectures) >= 100 else (11, 8)
    modern = min(architectures) >= 75 and (branch is None or int(branch[0]) >= 580)
    there = [
        version
        for version in found.cuda
        if re.fullmatch(r"\d+\.\d+", version)
        and version != _MISCOMPILES
        and _pair(version) >= least
        and (modern or _pair(version) < (13, 0))
    ]
    return max(there, key=_pair) if there else ("13.0" if modern else "12.9")


_FEW_CORES = 4
"""With fewer cores, the first run would mostly wait for the compiler."""
_RELEASED_GLIBC = (2, 39)
"""The C library that releases with CUDA need: they are built on Ubuntu 24.04."""


def is_prebuilt_better(found: FoundHost) -> bool:
    """Return whether a host has too few cores to build an engine, and runs the programs of its authors' releases."""
    runs = not (found.cards or found.bus) or GLIBC[found.os] >= _RELEASED_GLIBC
    return found.arch == "x86_64" and (found.cores or found.threads) < _FEW_CORES and runs


def _pair(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


HERD_FOLDER = ".herd"
"""llamaherd's own folder in a fleet: it is updated, while all other files belong to the user."""
EXAMPLE = "attic"
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class FileOutcome:
    """The result for a file: `written`, `kept` because it exists, or `unchanged` because it is the same."""

    file: Path
    what: Literal["written", "kept", "unchanged"]


def example_rig() -> str:
    """Return the text of an annotated rig, for the user to change."""
    return render("scaffold/example.yaml.j2", rig=EXAMPLE)


def example_names() -> tuple[str, ...]:
    """Return the names of the examples that come with llamaherd: rigs, and folders of rigs."""
    return tuple(sorted(path.stem for path in EXAMPLES.iterdir() if path.is_dir() or path.suffix in SUFFIXES))


def example_rigs(name: str) -> dict[str, str]:
    """Return the rigs of an example, text by name, with the rigs that it names and `fleet` for fleet.yaml.

    Raise ScaffoldError.
    """
    if name not in example_names():
        raise ScaffoldError(f"there is no example `{name[:60]}`", f"the examples are {', '.join(example_names())}")
    folder = EXAMPLES / name
    if folder.is_dir():
        return {path.stem: _with_schema(path) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
    rig = parse_rig((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return {each: _with_schema(EXAMPLES / f"{each}.yaml") for each in (name, *rig.store.neighbours)}


def _with_schema(path: Path) -> str:
    """Return the text of an example, with the line by which editors find its schema."""
    kind = "fleet" if is_fleet_file(path) else "rig"
    return f"# yaml-language-server: $schema={HERD_FOLDER}/{kind}.schema.json\n{path.read_text(encoding='utf-8')}"


def holds_rigs(folder: Path) -> bool:
    """Return whether the folder has a rig already and needs no example. Raise ScaffoldError."""
    try:
        return folder.is_dir() and any(p.suffix in SUFFIXES and p.name != DEFAULTS for p in folder.iterdir())
    except OSError as error:
        raise ScaffoldError(f"cannot read {folder}: {error.strerror}", "name a folder that is yours") from None


def fleet_files(rigs: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a fleet with these rigs, text by name of rig: text by path in the folder."""
    files = {
        name: render(f"scaffold/{name.removeprefix('.')}.j2")
        for name in ("inventory.py", "deploy.py", "defaults.yaml", "README.md", ".gitignore")
    }
    schemas = {f"{HERD_FOLDER}/{kind}.schema.json": schema_text(kind) for kind in SCHEMAS}
    return files | {f"{name}.yaml": text for name, text in rigs.items()} | schemas


def write_files(folder: Path, files: Mapping[str, str]) -> tuple[FileOutcome, ...]:
    """Write the missing files. No file of the user is overwritten. Raise ScaffoldError if one cannot be written."""
    return tuple(_write_file(folder, name, text) for name, text in files.items())


def _write_file(folder: Path, name: str, text: str) -> FileOutcome:
    file = folder / name
    if folder.exists() and not folder.is_dir():
        raise ScaffoldError(f"{folder} is not a folder", "name one, or a free name: the folder is created")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() or file.is_symlink():
            if file.read_text(encoding="utf-8", errors="replace") == text:
                return FileOutcome(file, "unchanged")
            if not name.startswith(f"{HERD_FOLDER}/"):
                return FileOutcome(file, "kept")
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScaffoldError(f"cannot write {file}: {error.strerror}", "name a folder that you can write to") from None
    return FileOutcome(file, "written")
