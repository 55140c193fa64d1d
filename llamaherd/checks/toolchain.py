"""CUDA toolkit and GPUs: whether there is such a toolkit, and whether it compiles for them."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.building import built_with_cuda
from llamaherd.checks.context import RigContext
from llamaherd.checks.declared_toolkit import Toolkit, declared_toolkit
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.schema import Card
from llamaherd.reference import toolchains
from llamaherd.reference.cards import CARDS
from llamaherd.reference.toolchains import dotted


def toolkit(subject: RigContext) -> Iterator[Finding]:
    """A CUDA toolkit that is none, that is not to be had, or that does not do for the GPUs."""
    yield from _unknown(subject)
    if kit := declared_toolkit(subject):
        for find in (_misnamed, _never_packaged, _too_old, _too_new):
            yield from find(kit)


UNKNOWN_TOOLKIT = Rule(
    "LH044",
    "The CUDA toolkit is not known here.",
    why="""
    It is newer than this llamaherd, older than what engines want, or no toolkit at all. Whether it goes with the
    host's compiler is not checked.
    """,
    example="""
    gpus: {cuda: "13.9"}
    """,
    way_out="none is needed if you know that it is right.",
    severity="note",
)


def _unknown(subject: RigContext) -> Iterator[Finding]:
    gpus = subject.rig.gpus
    if gpus and built_with_cuda(subject.rig) and toolchains.release(gpus.cuda) not in toolchains.NEWEST_GCC:
        known = sorted(toolchains.NEWEST_GCC)
        message = f"CUDA {gpus.cuda} is not known here, and whether it goes with this host's compiler is not checked"
        help_ = f"known here are {dotted(known[0])} to {dotted(known[-1])}; see that nvcc takes the host's gcc"
        yield UNKNOWN_TOOLKIT.at(subject.document.value(("gpus", "cuda")), message, help_)


NO_TOOLKIT = Rule(
    "LH230",
    "A toolkit is written as no toolkit is called.",
    why="`13.00` and `013.0` would be packages that do not exist: a name has no zeros in front.",
    example="""
    gpus: {cuda: "13.00"}
    """,
    way_out="write the name that the help line gives.",
)


def _misnamed(kit: Toolkit) -> Iterator[Finding]:
    if kit.written != dotted(kit.declared):
        message = f"`cuda: {kit.written}` is no name of a toolkit"
        yield NO_TOOLKIT.at(kit.place, message, f'write `cuda: "{dotted(kit.declared)}"`')


NEVER_PACKAGED = Rule(
    "LH231",
    "NVIDIA's repository for the system never had the toolkit.",
    why="Each repository begins with the toolkit that was new when the system came: apt would find no package.",
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
    way_out="write a newer toolkit, as the help line says. Or name a `repository:` that has it.",
)


def _never_packaged(kit: Toolkit) -> Iterator[Finding]:
    if kit.declared < kit.first:
        begins = f"NVIDIA's repository for {kit.system} begins with CUDA {dotted(kit.first)}"
        yield NEVER_PACKAGED.at(kit.place, f"{begins}: {kit.written} was never in it", kit.way_out)


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
    way_out="""
    write the toolkit that the help line gives: it also goes with the host's compiler and the declared driver.
    """,
)


def _too_old(kit: Toolkit) -> Iterator[Finding]:
    for name, card in kit.cards.items():
        compiling = toolchains.first_toolkit(card.cuda_architecture)
        if kit.declared < compiling:
            message = f"CUDA {kit.written} does not compile for {_shown(name, card)}"
            yield TOOLKIT_TOO_OLD.at(kit.place, f"{message}: the first that does is {dotted(compiling)}", kit.way_out)


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
    way_out="write an older toolkit, which the help line gives. Or leave the old GPU out of `on`.",
)


def _too_new(kit: Toolkit) -> Iterator[Finding]:
    for name, card in kit.cards.items():
        removed = toolchains.removed_in(card.cuda_architecture)
        if removed and kit.declared >= removed:
            message = f"CUDA {kit.written} does not compile for {_shown(name, card)} any more"
            yield TOOLKIT_TOO_NEW.at(kit.place, f"{message}: {dotted(removed)} took that away", kit.way_out)


def _shown(name: str, card: Card) -> str:
    return f"`{name}` ({card.model}, architecture {card.cuda_architecture})"


OTHER_ARCHITECTURE = Rule(
    "LH232",
    "A GPU that is known is declared with another architecture.",
    why="""
    Engines would be compiled for a GPU that is not there: code runs on its own generation alone, and on no older
    GPU of it. A variant such as `120a` is the same GPU.
    """,
    example="""
    gpus:
      cards:
        big: {model: RTX 3090, architecture: "89"}
    """,
    after="It is a warning where the code runs: that for 80 does on an 86, and is slower.",
    way_out="leave `architecture` out.",
    sometimes=("warning",),
)


def architectures(subject: RigContext) -> Iterator[Finding]:
    """A GPU that is known, declared with another architecture than it has."""
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
