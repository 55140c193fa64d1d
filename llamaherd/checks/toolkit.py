"""The CUDA toolkit: which engines need it, and whether it fits the GPUs, the host's compiler and the C library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import is_on
from llamaherd.inventory.schema import Card, Engine, Instance, Model, Rig
from llamaherd.inventory.schema.rig import OperatingSystem
from llamaherd.reference import toolchains
from llamaherd.reference.cards import CARDS
from llamaherd.reference.toolchains import Needs, Release, dotted


def built_with_cuda(rig: Rig) -> dict[str, Engine]:
    """Return the engines that are built with the rig's toolkit: from a source, with an instance on a GPU."""
    return {
        instance.engine: engine
        for instance in rig.instances.values()
        if instance.on and (engine := rig.engines.get(instance.engine)) and _with_toolkit(engine)
    }


def has_cuda_release(rig: Rig) -> bool:
    """Return whether an instance on a GPU runs a release, which is of the same major version of CUDA."""
    engines = (rig.engines.get(instance.engine) for instance in rig.instances.values() if instance.on)
    return any(engine and engine.release for engine in engines)


def gpus_built_for(rig: Rig) -> dict[str, Card]:
    """Return the GPUs that an engine is compiled for with the rig's toolkit."""
    engines = built_with_cuda(rig)
    cards: Mapping[str, Card] = rig.gpus.cards if rig.gpus else {}
    return {
        name: cards[name]
        for instance in rig.instances.values()
        if instance.engine in engines and "CMAKE_CUDA_ARCHITECTURES" not in engines[instance.engine].options
        for name in instance.on
        if name in cards
    }


def served_by_builds(rig: Rig) -> dict[str, Instance]:
    """Return the instances that run on a GPU with an engine that is built with the rig's toolkit."""
    engines = built_with_cuda(rig)
    return {name: each for name, each in rig.instances.items() if each.on and each.engine in engines}


def one_of_each(cards: Mapping[str, Card]) -> dict[str, Card]:
    """Return the first GPU of each model and architecture: a finding about it also applies to its twins."""
    first: dict[tuple[str, str], str] = {}
    for name, card in cards.items():
        first.setdefault((card.model, card.cuda_architecture), name)
    return {name: cards[name] for name in first.values()}


def _with_toolkit(engine: Engine) -> bool:
    options = engine.options
    return engine.is_built and is_on(options.get("GGML_CUDA", True)) and "CMAKE_CUDA_COMPILER" not in options


def host_compiler(rig: Rig, engine: Engine) -> str | None:
    """Return the program for the host's part of CUDA code; None for the distribution's own g++, or if the
    rig sets one.
    """
    declared = toolchains.release(rig.gpus.cuda) if rig.gpus else None
    if declared is None or _sets_host_compiler(engine):
        return None
    beside = toolchains.beside_gcc(rig.host.os, declared)
    return f"/usr/bin/g++-{beside}" if beside else None


def _sets_host_compiler(engine: Engine) -> bool:
    """Return whether the options of an engine name a compiler for the host's part of CUDA code, or accept any."""
    flags = str(engine.options.get("CMAKE_CUDA_FLAGS", ""))
    return "CMAKE_CUDA_HOST_COMPILER" in engine.options or "-allow-unsupported-compiler" in flags


def host_compilers(rig: Rig) -> set[str]:
    """Return the distribution's packages of these programs."""
    compilers = (host_compiler(rig, engine) for engine in built_with_cuda(rig).values())
    return {compiler.rpartition("/")[2] for compiler in compilers if compiler}


@dataclass(frozen=True)
class DeclaredToolkit:
    """The toolkit that a rig declares and builds with, and what it must support."""

    subject: RigContext
    written: str
    declared: Release
    engines: Mapping[str, Engine]
    cards: Mapping[str, Card]
    """One GPU of each kind that engines are compiled for."""
    first: Release
    """The oldest available toolkit."""
    place: Place

    @property
    def system(self) -> OperatingSystem:
        """The host's distribution."""
        return self.subject.rig.host.os

    @property
    def glibc(self) -> Release:
        """The host's C library."""
        return toolchains.GLIBC[self.system]

    @property
    def fix(self) -> str:
        """The fix, which fits everything, or what else to change. It gives up the driver first."""
        rig = self.subject.rig
        branch = int(rig.gpus.driver.branch) if rig.gpus and rig.gpus.driver and rig.host.wsl is None else None
        needs = Needs({card.cuda_architecture for card in self.cards.values()}, self.glibc, branch, self.first)
        if found := needs.nearest(self.declared):
            return f'write `cuda: "{dotted(found)}"`'
        if found := replace(needs, driver=None).nearest(self.declared):
            return f'write `cuda: "{dotted(found)}"` and `branch: {toolchains.FIRST_DRIVER[found[0]]}`'
        return "no toolkit compiles for all of these GPUs on this system: leave one out of `on`, or run an image"


def declared_toolkit(subject: RigContext) -> DeclaredToolkit | None:
    """Return the toolkit of a rig; None if nothing is built with it, or if it is unknown."""
    engines, gpus = built_with_cuda(subject.rig), subject.rig.gpus
    declared = toolchains.release(gpus.cuda) if gpus and engines else None
    if gpus is None or declared is None:
        return None
    cards = one_of_each(gpus_built_for(subject.rig))
    place = subject.document.value(("gpus", "cuda"))
    return DeclaredToolkit(subject, gpus.cuda, declared, engines, cards, _first_packaged(subject), place)


def _first_packaged(subject: RigContext) -> Release:
    """Return the oldest available toolkit: NVIDIA's own repository is known, another one may hold anything."""
    own = subject.rig.gpus and subject.rig.gpus.repository is None and subject.rig.host.wsl is None
    return toolchains.FIRST_PACKAGED.get(subject.rig.host.os, (0, 0)) if own else (0, 0)


def check_toolkit(subject: RigContext) -> Iterator[Finding]:
    """Report a CUDA toolkit that is unknown, unavailable, or does not support the GPUs."""
    yield from _unknown(subject)
    if kit := declared_toolkit(subject):
        for find in (_misnamed, _never_packaged, _too_old, _too_new):
            yield from find(kit)


UNKNOWN_TOOLKIT = Rule(
    "LH044",
    "The CUDA toolkit is unknown.",
    why="""
    It is newer than this llamaherd, older than what engines need, or no toolkit at all. Whether it supports the host's
    compiler is not checked.
    """,
    example="""
    gpus: {cuda: "13.9"}
    """,
    fix="none is needed if you are sure that it is right.",
    severity="note",
)


def _unknown(subject: RigContext) -> Iterator[Finding]:
    gpus = subject.rig.gpus
    if gpus and built_with_cuda(subject.rig) and toolchains.release(gpus.cuda) not in toolchains.NEWEST_GCC:
        known = sorted(toolchains.NEWEST_GCC)
        message = f"CUDA {gpus.cuda} is unknown, and whether it supports this host's compiler is not checked"
        help_ = f"known toolkits are {dotted(known[0])} to {dotted(known[-1])}; check that nvcc takes the host's gcc"
        yield UNKNOWN_TOOLKIT.at(subject.document.value(("gpus", "cuda")), message, help_)


NO_TOOLKIT = Rule(
    "LH230",
    "A toolkit's name is not written as NVIDIA writes it.",
    why="`13.00` and `013.0` would be packages that do not exist: a name has no zeros in front.",
    example="""
    gpus: {cuda: "13.00"}
    """,
    fix="write the name that the help line gives.",
)


def _misnamed(kit: DeclaredToolkit) -> Iterator[Finding]:
    if kit.written != dotted(kit.declared):
        message = f"`cuda: {kit.written}` is not the name of a toolkit"
        yield NO_TOOLKIT.at(kit.place, message, f'write `cuda: "{dotted(kit.declared)}"`')


NEVER_PACKAGED = Rule(
    "LH231",
    "NVIDIA's repository for the system never had the toolkit.",
    why="Each repository begins with the toolkit that was new when the system appeared: apt would find no package.",
    example="""
    host: {os: ubuntu-24.04}
    gpus:
      cuda: "12.4"
      cards:
        big: {model: RTX 4090}
    """,
    after="""
    | system | begins with CUDA |
    | --- | --- |
    | Ubuntu 22.04 | 11.7 |
    | Debian 12 | 12.3 |
    | Ubuntu 24.04 | 12.5 |
    """,
    fix="write the newer toolkit of the help line. Or name a `repository:` that has it.",
)


def _never_packaged(kit: DeclaredToolkit) -> Iterator[Finding]:
    if kit.declared < kit.first:
        begins = f"NVIDIA's repository for {kit.system} begins with CUDA {dotted(kit.first)}"
        yield NEVER_PACKAGED.at(kit.place, f"{begins}: {kit.written} was never in it", kit.fix)


TOOLKIT_TOO_OLD = Rule(
    "LH040",
    "The CUDA toolkit is too old for a GPU.",
    why="""
    Each architecture has a first toolkit that compiles for it: 11.1 for 86 (RTX 30), 11.8 for 89 and 90 (RTX 40,
    H100), 12.8 for 120 (RTX 50).
    """,
    example="""
    gpus:
      cuda: "12.6"
      cards:
        big: {model: RTX 5090}
    """,
    fix="write the toolkit that the help line gives: it also fits the host's compiler and the declared driver.",
)


def _too_old(kit: DeclaredToolkit) -> Iterator[Finding]:
    for name, card in kit.cards.items():
        compiling = toolchains.first_toolkit(card.cuda_architecture)
        if kit.declared < compiling:
            message = f"CUDA {kit.written} does not compile for {_shown(name, card)}"
            yield TOOLKIT_TOO_OLD.at(kit.place, f"{message}: the first that does is {dotted(compiling)}", kit.fix)


TOOLKIT_TOO_NEW = Rule(
    "LH041",
    "The CUDA toolkit does not compile for a GPU any more.",
    why="CUDA 12.0 dropped Kepler; CUDA 13.0 dropped Maxwell, Pascal and Volta.",
    example="""
    gpus:
      cards:
        big: {model: GTX 1080 Ti}
    instances:
      coder: {model: small, draft: null}
    """,
    fix="write an older toolkit, which the help line gives. Or leave the old GPU out of `on`.",
)


def _too_new(kit: DeclaredToolkit) -> Iterator[Finding]:
    for name, card in kit.cards.items():
        removed = toolchains.removed_in(card.cuda_architecture)
        if removed and kit.declared >= removed:
            message = f"CUDA {kit.written} does not compile for {_shown(name, card)} any more"
            yield TOOLKIT_TOO_NEW.at(kit.place, f"{message}: {dotted(removed)} dropped it", kit.fix)


def _shown(name: str, card: Card) -> str:
    return f"`{name}` ({card.model}, architecture {card.cuda_architecture})"


OTHER_ARCHITECTURE = Rule(
    "LH232",
    "A known GPU is declared with another architecture.",
    why="""
    Engines would be compiled for a GPU that is not there: code runs on its own generation alone, and on no older GPU of
    it. A variant such as `120a` is the same GPU.
    """,
    example="""
    gpus:
      cards:
        big: {model: RTX 3090, architecture: "89"}
    """,
    after="It is a warning where the code runs: that for 80 does on an 86, and is slower.",
    fix="leave `architecture` out.",
    sometimes=("warning",),
)


def check_architectures(subject: RigContext) -> Iterator[Finding]:
    """Report known GPUs that are declared with another architecture."""
    for name, card in subject.rig.gpus.cards.items() if subject.rig.gpus else ():
        known = CARDS.get(card.model)
        if known is None or card.architecture is None or card.architecture.rstrip("af") == known.architecture:
            continue
        place = subject.document.value(("gpus", "cards", name, "architecture"))
        runs = toolchains.runs_on(card.architecture, known.architecture)
        what = f"`{name}` is a {card.model}, whose architecture is {known.architecture}"
        then = "code for {} runs there, and is slower" if runs else "no code for {} runs there"
        message = f"{what}: {then.format(card.architecture)}"
        yield OTHER_ARCHITECTURE.at(place, message, "leave `architecture` out", "warning" if runs else "error")


def check_host_compiler(subject: RigContext) -> Iterator[Finding]:
    """Report a toolkit that miscompiles the models, or does not fit the host's compiler and C library."""
    if kit := declared_toolkit(subject):
        for find in (_miscompiled, _other_c_library, _older_gcc):
            yield from find(kit)


MISCOMPILED = Rule(
    "LH042",
    "The CUDA toolkit miscompiles the kernels of IQ quants.",
    why="""
    CUDA 13.2 does: models write gibberish. 13.1 and 13.3 are fine
    ([#21255](https://github.com/ggml-org/llama.cpp/issues/21255)). It is an error for a model with such tensors, by its
    lock or its name. Otherwise it is a warning: quants of other names often hold some.
    """,
    example="""
    gpus:
      cuda: "13.2"
    models:
      35b: {quant: UD-IQ3_XXS}
    """,
    fix="""
    write another toolkit. To keep 13.2, write `options: {CMAKE_CUDA_FLAGS: "-Xcicc -O1"}` for the engine, as the
    reports recommend.
    """,
    sometimes=("warning",),
)


def _miscompiled(kit: DeclaredToolkit) -> Iterator[Finding]:
    if kit.declared not in toolchains.MISCOMPILING or all(map(_optimises_less, kit.engines.values())):
        return
    message = f"CUDA {kit.written} miscompiles the kernels of IQ quants"
    rig = kit.subject.rig
    for name in sorted({instance.model for instance in served_by_builds(rig).values()}):
        model = rig.models.get(name)
        if (model and _names_iq(model)) or _holds_iq(kit.subject, name):
            yield MISCOMPILED.at(kit.place, f"{message}: `{name}` would write gibberish", kit.fix)
            return
    message = f"{message}, which models of other quants hold tensors of as well"
    yield MISCOMPILED.at(kit.place, message, kit.fix, "warning")


def _optimises_less(engine: Engine) -> bool:
    """Return whether the engine has the workaround that the reports of the miscompilation name."""
    return "-Xcicc -O1" in str(engine.options.get("CMAKE_CUDA_FLAGS", ""))


def _names_iq(model: Model) -> bool:
    """Return whether a model's name contains an IQ quant, as in `UD-IQ3_XXS` and `*IQ2_M*.gguf`."""
    names = (model.quant or "", model.files, model.file.name if model.file else "")
    return any(re.search(r"(?<![a-z0-9])iq\d", name, re.IGNORECASE) for name in names)


def _holds_iq(subject: RigContext, name: str) -> bool:
    header = subject.headers.get(name)
    return header is not None and any(group.type.startswith("IQ") for group in header.tensors)


OTHER_C_LIBRARY = Rule(
    "LH069",
    "The CUDA toolkit does not compile with the host's C library.",
    why="""
    glibc 2.41 came to declare `cospi` and similar functions, and glibc 2.42 `rsqrt`. The headers of older toolkits
    declare them otherwise, and nvcc stops at the first file: `exception specification is incompatible with that of
    previous function "cospi"`. No older g++ helps, since it reads the same C library.
    """,
    example="""
    host: {os: debian-13}
    gpus: {cuda: "12.8"}
    """,
    after="""
    | toolkit | glibc up to | so not on |
    | --- | --- | --- |
    | before 13.0 | 2.40 | Debian 13, Ubuntu 26.04 |
    | 13.0 and 13.1 | 2.41 | Ubuntu 26.04 |
    """,
    fix="""
    write the newer toolkit of the help line. A GPU that CUDA 13 no longer compiles for needs an older system, or an
    image. If you have repaired a toolkit's headers, name its nvcc by `options: {CMAKE_CUDA_COMPILER: …}`: nothing of
    this is then checked.
    """,
)


def _other_c_library(kit: DeclaredToolkit) -> Iterator[Finding]:
    newest = toolchains.newest_glibc(kit.declared)
    if newest and kit.glibc > newest:
        library = f"the C library of {kit.system}, glibc {dotted(kit.glibc)}"
        limit = f"the newest that it supports is {dotted(newest)}"
        message = f"CUDA {kit.written} does not compile with {library}: {limit}"
        yield OTHER_C_LIBRARY.at(kit.place, message, kit.fix)


GCC_TOO_NEW = Rule(
    "LH043",
    "The host's compiler is too new for the CUDA toolkit, and `herd up` installs an older one as well.",
    why="""
    nvcc refuses a gcc that is newer than those it supports. `host.os` decides which gcc a host has. NVIDIA's own
    repositories hardly have such toolkits: this is for a mirror.
    """,
    example="""
    host: {os: debian-12}
    gpus:
      cuda: "11.8"
      repository: {url: "https://mirror.lan/cuda", key: key.asc, fingerprint: ABABABABABABABABABABABABABABABABABABABAB}
    """,
    after="""
    `herd up` installs the newest `g++-N` of the distribution that the toolkit takes, and builds get
    `CMAKE_CUDA_HOST_COMPILER: /usr/bin/g++-N`. The rest is compiled with the distribution's own g++.
    """,
    fix="""
    none is needed. To name another compiler, write `options: {CMAKE_CUDA_HOST_COMPILER: …}`. A newer toolkit needs
    none.
    """,
    severity="note",
)


def _older_gcc(kit: DeclaredToolkit) -> Iterator[Finding]:
    beside = toolchains.beside_gcc(kit.system, kit.declared)
    if beside and _with_the_hosts_gcc(kit.engines) and not any(True for _ in _other_c_library(kit)):
        newest, own = toolchains.NEWEST_GCC[kit.declared], toolchains.DISTRIBUTION_GCC[kit.system]
        message = f"CUDA {kit.written} takes gcc up to {newest}, and {kit.system} compiles with gcc {own}"
        help_ = f"`herd up` also installs g++-{beside}, which compiles the host's part of CUDA code"
        yield GCC_TOO_NEW.at(kit.place, message, help_)


def _with_the_hosts_gcc(engines: Mapping[str, Engine]) -> bool:
    return not all(map(_sets_host_compiler, engines.values()))
