"""CUDA toolkit, cards, host compiler and driver: whether they go together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from llamaherd.checks.building import built_for, built_with_cuda, served_by_builds
from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.schema import Card, Engine, Gpus, Model
from llamaherd.reference import toolchains
from llamaherd.reference.cards import CARDS
from llamaherd.reference.drivers import OPEN_ONLY, OWN_BRANCH, UBUNTU_BRANCHES
from llamaherd.reference.toolchains import Needs, Release, shown

_CUDA = ("gpus", "cuda")
_BRANCH = ("gpus", "driver", "branch")
_LASTING = f"write `branch: {toolchains.LONG_SUPPORTED}`, which NVIDIA supports until June 2028"


def toolkit(subject: RigContext) -> Iterator[Finding]:
    """A CUDA toolkit that does not do for the cards, the models, or the host's compiler and C library."""
    gpus = subject.rig.gpus
    engines = built_with_cuda(subject.rig)
    if gpus is None or not engines:
        return
    place = subject.document.value(_CUDA)
    declared = toolchains.release(gpus.cuda)
    if declared is None or declared not in toolchains.NEWEST_GCC:
        known = sorted(toolchains.NEWEST_GCC)
        message = f"CUDA {gpus.cuda} is not known here, and whether it goes with this host's compiler is not checked"
        help_ = f"known here are {shown(known[0])} to {shown(known[-1])}; see that nvcc takes the host's gcc"
        yield Finding("LH044", place, message, help_, "note")
    if declared is None:
        return
    if gpus.cuda != shown(declared):
        message = f"`cuda: {gpus.cuda}` is no name of a toolkit"
        yield Finding("LH230", place, message, f'write `cuda: "{shown(declared)}"`')
    cards = built_for(subject.rig)
    system = subject.rig.host.os
    driver = int(gpus.driver.branch) if gpus.driver and subject.rig.host.wsl is None else None
    glibc = toolchains.GLIBC[system]
    first = _first_packaged(subject)
    way_out = _WayOut(Needs({card.cuda_architecture for card in cards.values()}, glibc, driver, first), declared)
    if declared < first:
        message = f"NVIDIA's repository for {system} begins with CUDA {shown(first)}: {gpus.cuda} was never in it"
        yield Finding("LH231", place, message, way_out.said)
    for name, card in _one_of_each(cards).items():
        what = f"`{name}` ({card.model}, architecture {card.cuda_architecture})"
        removed = toolchains.removed_in(card.cuda_architecture)
        if declared < (compiling := toolchains.first_toolkit(card.cuda_architecture)):
            message = f"CUDA {gpus.cuda} does not compile for {what}: the first that does is {shown(compiling)}"
            yield Finding("LH040", place, message, way_out.said)
        elif removed and declared >= removed:
            message = f"CUDA {gpus.cuda} does not compile for {what} any more: {shown(removed)} took that away"
            yield Finding("LH041", place, message, way_out.said)
    if declared in toolchains.MISCOMPILING and not all(_optimises_less(engine) for engine in engines.values()):
        yield _miscompiled(subject, gpus.cuda, way_out.said)
    if (newest := toolchains.newest_glibc(declared)) and glibc > newest:
        message = (
            f"CUDA {gpus.cuda} does not compile with the C library of {system}, glibc {shown(glibc)}: "
            f"the newest that it does with is {shown(newest)}"
        )
        yield Finding("LH069", place, message, way_out.said)
    elif _with_the_hosts_gcc(engines) and (beside := toolchains.beside_gcc(system, declared)):
        newest_gcc, own = toolchains.NEWEST_GCC[declared], toolchains.DISTRIBUTION_GCC[system]
        message = f"CUDA {gpus.cuda} takes gcc up to {newest_gcc}, and {system} compiles with gcc {own}"
        help_ = f"g++-{beside} is installed beside it, and compiles the host's part of CUDA code"
        yield Finding("LH043", place, message, help_, "note")


def architectures(subject: RigContext) -> Iterator[Finding]:
    """A card that is known, declared with another architecture than it has."""
    for name, card in subject.rig.gpus.cards.items() if subject.rig.gpus else ():
        known = CARDS.get(card.model)
        if known is None or card.architecture is None or card.architecture.rstrip("af") == known.architecture:
            continue
        place = subject.document.value(("gpus", "cards", name, "architecture"))
        runs = toolchains.runs_on(card.architecture, known.architecture)
        what = f"`{name}` is a {card.model}, whose architecture is {known.architecture}"
        then = "code for {} runs there, and is slower" if runs else "no code for {} runs there"
        message = f"{what}: {then.format(card.architecture)}"
        yield Finding("LH232", place, message, "leave `architecture` out", "warning" if runs else "error")


def _first_packaged(subject: RigContext) -> Release:
    """The oldest toolkit that can be had: NVIDIA's own repository is known, another one may hold anything."""
    own = subject.rig.gpus and subject.rig.gpus.repository is None and subject.rig.host.wsl is None
    return toolchains.FIRST_PACKAGED.get(subject.rig.host.os, (0, 0)) if own else (0, 0)


def driver(subject: RigContext) -> Iterator[Finding]:
    """A driver branch that does not do for the toolkit or the cards, or that has ended; any driver under WSL."""
    gpus = subject.rig.gpus
    if gpus is None or gpus.driver is None:
        return
    if subject.rig.host.wsl is not None:
        place = subject.document.key(("gpus", "driver"))
        message = "the driver of a card under WSL is Windows' own, and one inside Linux would stand in its way"
        yield Finding("LH048", place, message, "leave out `driver`, and install NVIDIA's driver for Windows there")
        return
    wrong = list(_wrong_branch(subject, gpus, int(gpus.driver.branch)))
    yield from wrong
    if not wrong:
        yield from _ended(subject, gpus, int(gpus.driver.branch))


def _wrong_branch(subject: RigContext, gpus: Gpus, branch: int) -> Iterator[Finding]:
    place = subject.document.value(_BRANCH)
    declared = toolchains.release(gpus.cuda)
    needed = toolchains.FIRST_DRIVER.get(declared[0]) if declared and built_with_cuda(subject.rig) else None
    if needed and branch < needed:
        message = f"driver branch {branch} is too old for CUDA {gpus.cuda}, which needs {needed} or newer"
        yield Finding("LH045", place, message, _LASTING)
    for problem, way_out in _cards_and_branch(gpus, branch):
        yield Finding("LH046", place, problem, way_out)
    yield from _modules(subject, gpus, branch)
    yield from _from_the_distribution(subject, gpus, branch)


def _ended(subject: RigContext, gpus: Gpus, branch: int) -> Iterator[Finding]:
    """A branch that gets no fixes any more. A distribution looks after its own."""
    if gpus.driver is None or gpus.driver.from_ == "distribution":
        return
    ended = toolchains.ENDED_BRANCHES.get(branch)
    if ended:
        message = f"NVIDIA supported driver branch {branch} until {ended}"
    elif branch < toolchains.NEWEST_LISTED and branch not in toolchains.SUPPORTED_BRANCHES:
        message = f"driver branch {branch} is not among those that NVIDIA supported in September 2026"
    else:
        return
    yield Finding("LH047", subject.document.value(_BRANCH), message, _LASTING, "note")


@dataclass(frozen=True)
class _WayOut:
    """What to write for `cuda` so that all goes together, and what else where that alone is not possible."""

    needs: Needs
    declared: Release

    @property
    def said(self) -> str:
        """The sentence; it gives up the driver first."""
        if found := self.needs.nearest(self.declared):
            return f'write `cuda: "{shown(found)}"`'
        if found := replace(self.needs, driver=None).nearest(self.declared):
            return f'write `cuda: "{shown(found)}"` and `branch: {toolchains.FIRST_DRIVER[found[0]]}`'
        return "no toolkit compiles for all of these cards on this system: leave one out of `on`, or run an image"


def _modules(subject: RigContext, gpus: Gpus, branch: int) -> Iterator[Finding]:
    """A kernel has one driver, with modules of one kind: cards that need two cannot be in one rig."""
    cards = {name: int(card.cuda_architecture.rstrip("af")) for name, card in _one_of_each(gpus.cards).items()}
    old = next((name for name, number in cards.items() if number < toolchains.TURING), None)
    new = next((name for name, number in cards.items() if number >= toolchains.BLACKWELL), None)
    declared = gpus.driver.modules if gpus.driver else None
    place = subject.document.value(("gpus", "driver", "modules")) if declared else subject.document.value(_BRANCH)
    if old and new:
        message = f"`{old}` takes proprietary kernel modules only and `{new}` open ones only; a kernel loads one kind"
        yield Finding("LH058", place, message, "leave one of the two out, or put it into another rig")
    elif declared == "open" and old:
        message = f"`{old}` ({gpus.cards[old].model}) does not work with the open kernel modules"
        yield Finding("LH058", place, message, "leave `modules` out, or write `modules: proprietary`")
    elif declared == "proprietary" and new:
        message = f"`{new}` ({gpus.cards[new].model}) works with the open kernel modules only"
        yield Finding("LH058", place, message, "leave `modules` out, or write `modules: open`")
    elif declared == "proprietary" and branch >= OPEN_ONLY:
        message = f"driver branch {branch} has no proprietary kernel modules: {OPEN_ONLY} dropped them"
        yield Finding("LH058", place, message, "leave `modules` out, or write `branch: 580`")


def _from_the_distribution(subject: RigContext, gpus: Gpus, branch: int) -> Iterator[Finding]:
    """Debian has one branch in each release; Ubuntu has several, and new ones come."""
    if gpus.driver is None or gpus.driver.from_ != "distribution":
        return
    os = subject.rig.host.os
    own, seen = OWN_BRANCH.get(os), UBUNTU_BRANCHES.get(os, frozenset())
    place = subject.document.value(_BRANCH)
    if own and branch != own:
        message = f"{os} itself has driver branch {own} and no other, the rig asks for {branch}"
        yield Finding(
            "LH059", place, message, f"leave `from` out, so that it comes from NVIDIA, or write `branch: {own}`"
        )
    elif seen and branch not in seen:
        message = f"driver branch {branch} was not among those of {os} when this was written"
        known = ", ".join(map(str, sorted(seen)))
        yield Finding("LH059", place, message, f"write one of {known}, or leave `from` out", "warning")


def _one_of_each(cards: Mapping[str, Card]) -> dict[str, Card]:
    """The first card of each model and architecture: what is said of it holds for the others."""
    first: dict[tuple[str, str], str] = {}
    for name, card in cards.items():
        first.setdefault((card.model, card.cuda_architecture), name)
    return {name: cards[name] for name in first.values()}


def _with_the_hosts_gcc(engines: Mapping[str, Engine]) -> bool:
    def own(engine: Engine) -> bool:
        flags = str(engine.options.get("CMAKE_CUDA_FLAGS", ""))
        return "CMAKE_CUDA_HOST_COMPILER" in engine.options or "-allow-unsupported-compiler" in flags

    return not all(own(engine) for engine in engines.values())


def _optimises_less(engine: Engine) -> bool:
    """The way around the miscompilation that its reports name."""
    return "-Xcicc -O1" in str(engine.options.get("CMAKE_CUDA_FLAGS", ""))


def _miscompiled(subject: RigContext, cuda: str, way_out: str) -> Finding:
    place = subject.document.value(_CUDA)
    served = sorted({instance.model for instance in served_by_builds(subject.rig).values()})
    for name in served:
        model = subject.rig.models.get(name)
        if (model and _names_iq(model)) or _holds_iq(subject, name):
            message = f"CUDA {cuda} miscompiles the kernels of IQ quants: `{name}` would answer gibberish"
            return Finding("LH042", place, message, way_out)
    message = f"CUDA {cuda} miscompiles the kernels of IQ quants, which models of other quants hold tensors of as well"
    return Finding("LH042", place, message, way_out, "warning")


def _names_iq(model: Model) -> bool:
    """Whether a model is called by an IQ quant, as in `UD-IQ3_XXS` and `*IQ2_M*.gguf`."""
    names = (model.quant or "", model.files, model.file.name if model.file else "")
    return any(re.search(r"(?<![a-z0-9])iq\d", name, re.IGNORECASE) for name in names)


def _holds_iq(subject: RigContext, name: str) -> bool:
    header = subject.headers.get(name)
    return header is not None and any(group.type.startswith("IQ") for group in header.tensors)


def _cards_and_branch(gpus: Gpus, branch: int) -> Iterator[tuple[str, str]]:
    """What a branch does not know, and the way out."""
    for name, card in _one_of_each(gpus.cards).items():
        number = int(card.cuda_architecture.rstrip("af"))
        what = f"driver branch {branch} does not know `{name}` ({card.model})"
        if number >= toolchains.BLACKWELL and branch < toolchains.BLACKWELL_DRIVER:
            yield f"{what}: the first that does is {toolchains.BLACKWELL_DRIVER}", _LASTING
        elif number < toolchains.KEPLER and branch > toolchains.KEPLER_DRIVER:
            message = f"{what} any more: {toolchains.KEPLER_DRIVER} was the last that did"
            yield message, "leave it out of the rig: no branch that NVIDIA supports knows it"
        elif toolchains.KEPLER <= number < toolchains.TURING and branch >= toolchains.DROPPED_DRIVER:
            yield f"{what} any more: {toolchains.DROPPED_DRIVER} dropped it", _LASTING
