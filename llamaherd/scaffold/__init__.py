"""The files of `herd init`: a fleet folder, and a rig from an inspection of its host, with a model that fits."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import yaml
from pydantic import ValidationError

from llamaherd.diagnostics.findings import UserError
from llamaherd.gguf.header import Header
from llamaherd.host.protocol import UnexpectedLineError, query_verb
from llamaherd.host.remote import NoPythonError, Remote
from llamaherd.inventory.json_schema import SCHEMAS, schema_text
from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.inventory.schema.rig import OperatingSystem
from llamaherd.inventory.yaml_file import DEFAULTS, parse_yaml
from llamaherd.memory.facts import rig_facts
from llamaherd.onhost.hardware import FoundGpu, FoundHost, HardwareInput
from llamaherd.pipeline.fleet_files import is_fleet_file
from llamaherd.reference.cards import CARDS
from llamaherd.reference.toolchains import GLIBC
from llamaherd.render import render
from llamaherd.resources import EXAMPLES
from llamaherd.text.numbers import show_size
from llamaherd.text.quoting import Written, yaml_value

INIT_SECONDS = 60.0
"""More than `nvidia-smi` may take on the host."""
_MOST_COUNT = 10**18
_MOST_GPUS = 64


class ScaffoldError(UserError):
    """An inspection that cannot become a rig: one sentence, and a fix."""


def inspect_hardware(connect: Connect) -> FoundHost:
    """Inspect a host, in one connection. Raise RemoteError if it cannot be reached, ScaffoldError if it is unfit."""
    try:
        found = query_verb(Remote(connect), "llamaherd.hardware.inspect", HardwareInput(), FoundHost, INIT_SECONDS)
    except NoPythonError as error:
        install = f"install it: `{_install_command(connect)}`, then run this command again"
        raise ScaffoldError(error.message, install if error.installable else error.help) from None
    refuse_unfit(checked_hardware(found), "this machine" if connect.host == LOCAL else connect.host)
    return found


def _install_command(connect: Connect) -> str:
    """Return the command that installs python3 on a host. A new machine has no package lists yet."""
    sudo = "" if connect.user == "root" else "sudo "
    install = f"{sudo}apt-get update && {sudo}apt-get install -y python3"
    if connect.host == LOCAL:
        return install
    options = [*(["-p", str(connect.port)] if connect.port else []), *(["-i", str(connect.key)] if connect.key else [])]
    host = f"{connect.user}@{connect.host}" if connect.user else connect.host
    return shlex.join(("ssh", *options, host, install))


def refuse_unfit(found: FoundHost, host: str) -> None:
    """Raise ScaffoldError if llamaherd cannot use such a host."""
    known = get_args(OperatingSystem)
    if found.os not in known:
        what = f"runs {found.os}" if found.os else "has no known system in /etc/os-release"
        raise ScaffoldError(f"{host} {what}, which llamaherd cannot provision", f"its systems are {', '.join(known)}")
    if not found.memory or not (found.cores or found.threads):
        raise ScaffoldError(f"{host} does not report its cores and memory", "is /proc mounted there?")


def checked_hardware(found: FoundHost) -> FoundHost:
    """Return the hardware of a host. Raise UnexpectedLineError if no host can have this hardware."""
    for text in _texts(found):
        if not text.isprintable():
            raise UnexpectedLineError(text)
    for count in (found.cores, found.threads, found.performance or 0, found.memory, found.free):
        if not 0 <= count <= _MOST_COUNT:
            raise UnexpectedLineError(str(count))
    if len(found.cards) > _MOST_GPUS or len(found.bus) > _MOST_GPUS:
        raise UnexpectedLineError(f"{len(found.cards)} and {len(found.bus)} GPUs")
    return found


def _texts(found: FoundHost) -> Iterator[str]:
    yield from (found.name, found.os, found.arch, found.cpu, found.refused, *found.cuda)
    for card in found.cards:
        yield from (card.uuid, card.pci, card.driver, card.capability, card.name)
    for address, name in found.bus:
        yield from (address, name)


_NEAR = 0.03
"""The difference in memory between two GPUs of one model: a driver or ECC takes a little of it."""


@dataclass(frozen=True)
class WrittenGpu:
    """A GPU as a rig's file has it; what `model` implies is None. `comment` is about it."""

    model: str
    uuid: str | None = None
    pci: str | None = None
    architecture: str | None = None
    memory_mib: int | None = None
    comment: str = ""

    @property
    def known(self) -> bool:
        """Return whether the file is valid with it: its architecture and its memory are known."""
        return self.model in CARDS or (self.architecture is not None and self.memory_mib is not None)

    @property
    def memory(self) -> int:
        """Its memory in MiB; 0 if it is unknown."""
        return self.memory_mib or (CARDS[self.model].memory_mib if self.model in CARDS else 0)

    @property
    def sm(self) -> int:
        """Its architecture, as a number such as 86; 0 if it is unknown."""
        architecture = self.architecture or (CARDS[self.model].architecture if self.model in CARDS else "")
        return int(re.sub(r"\D", "", architecture) or 0)


def written_gpus(found: FoundHost) -> tuple[WrittenGpu, ...]:
    """Return all GPUs of a host, in the order of their PCI addresses: from the driver, or else from the bus."""
    if found.cards:
        return tuple(written_gpu(gpu) for gpu in sorted(found.cards, key=lambda gpu: gpu.pci))
    return tuple(WrittenGpu(model=model_from_bus(name), pci=address) for address, name in sorted(found.bus))


def written_gpu(found: FoundGpu) -> WrittenGpu:
    """Return a GPU from the driver's values."""
    architecture = found.capability.replace(".", "") if re.fullmatch(r"\d+\.\d", found.capability) else None
    plain = plain_name(found.name) or "unknown"
    model = _known_card(plain, found.memory_mib) or plain
    known = CARDS.get(model)
    size = found.memory_mib
    same_memory = known and (size is None or abs(known.memory_mib - size) <= _NEAR * known.memory_mib)
    return WrittenGpu(
        model=model,
        uuid=found.uuid if re.fullmatch(r"GPU-[0-9A-Za-z-]+", found.uuid) else None,
        architecture=None if known and architecture in (None, known.architecture) else architecture,
        memory_mib=None if same_memory else found.memory_mib,
        comment=_described(found),
    )


def plain_name(name: str) -> str:
    """Return `RTX 5090M` for `NVIDIA GeForce RTX 5090 Laptop GPU`: without the vendor, a laptop's GPU with an M."""
    name = re.sub(r"^(NVIDIA\s+)?(GeForce\s+)?", "", name.strip())
    return re.sub(r"\s+(Laptop GPU|Max-Q / Mobile|Mobile / Max-Q|Mobile)$", "M", name.removesuffix(" Lite Hash Rate"))


def model_from_bus(name: str) -> str:
    """Return `lspci`'s name of a GPU in the words of an inventory: the text in brackets behind the chip's name."""
    bracketed = re.search(r"\[([^][]+)\]", name)
    plain = plain_name(bracketed[1] if bracketed else re.sub(r"^NVIDIA Corporation\s*", "", name))
    plain = re.sub(r"\s*\(rev \w+\)$", "", plain)
    return _known_card(plain, None) or plain or "unknown"


def _known_card(plain: str, memory_mib: int | None) -> str | None:
    """Return the name in CARDS: the same one in any case, by its memory if two GPUs share it (`RTX 4060 Ti 16GB`)."""
    wanted = plain.casefold()
    same = [name for name in CARDS if re.sub(r" \d+GB$", "", name).casefold() == wanted]
    if wanted.startswith("rtx pro ") or not wanted.startswith(("rtx ", "gtx ")):
        # `H100 80GB HBM3`, `A100-SXM4-80GB`: what follows the name is how the GPU is built.
        same += [n for n in CARDS if re.match(re.escape(n.casefold()) + r"[ -]", wanted)]
    if memory_mib is not None:
        same.sort(key=lambda name: abs(CARDS[name].memory_mib - memory_mib))
    return same[0] if same else None


def _described(found: FoundGpu) -> str:
    place = re.sub(r"^0000(?=[0-9a-fA-F]{4}:)", "", found.pci).lower()
    if found.power_limit is None:
        return f"at {place}; takes no power limit: limit its clocks instead, as in `clocks: {{max: 1800MHz}}`"
    most = f", {found.most_power:.0f} W at most" if found.most_power else ""
    return f"at {place}; draws up to {found.power_limit:.0f} W{most}: `power_limit: 280W` would limit it"


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
    found: FoundHost, make_rig: Callable[[Proposal], Rig], read_header: ReadHeader, report: Callable[[str], None]
) -> Proposal:
    """Return the first model that fits the host, from the largest to the smallest; SMALL if no header can be read.

    `make_rig` returns the rig with a proposal, whose memory is then calculated as `herd check` does.
    """
    gpus = written_gpus(found)
    largest = max((gpu.memory for gpu in gpus), default=0) if all(gpu.known for gpu in gpus) else 0
    tried = [each for each in LARGE if largest >= each.least]
    try:
        for each in (*tried, *([SMALL] if largest else [])):
            report(f"reading the header of {each.on_hub}")
            header = read_header(each.on_hub)
            if fits_rig(make_rig(each), header, found.free):
                return each
    except UserError as error:
        report(f"proposing the small model {SMALL.on_hub}: {error.message}")
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
