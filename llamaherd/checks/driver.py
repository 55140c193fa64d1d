"""The driver: whether its branch supports toolkit, GPUs and distribution, and whether NVIDIA still maintains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llamaherd.checks.context import RigContext
from llamaherd.checks.hardware import INSIDE_WSL
from llamaherd.checks.toolkit import built_with_cuda, has_cuda_release, one_of_each
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.inventory.schema import Card, Driver, Gpus
from llamaherd.reference import toolchains
from llamaherd.reference.packages import OPEN_ONLY, OWN_BRANCH, UBUNTU_BRANCHES

_BRANCH = ("gpus", "driver", "branch")
_LASTING = f"write `branch: {toolchains.LONG_SUPPORTED}`, which NVIDIA supports until June 2028"


@dataclass(frozen=True)
class DeclaredDriver:
    """The driver that a rig declares."""

    subject: RigContext
    gpus: Gpus
    driver: Driver
    cards: Mapping[str, Card]
    """One GPU of each kind."""

    @property
    def branch(self) -> int:
        """Its branch."""
        return int(self.driver.branch)

    @property
    def place(self) -> Place:
        """The place of the branch in the file."""
        return self.subject.document.value(_BRANCH)


def check_driver(subject: RigContext) -> Iterator[Finding]:
    """Report a driver branch that does not support the toolkit or the GPUs, or that has ended; any driver under WSL."""
    gpus = subject.rig.gpus
    if gpus is None or gpus.driver is None:
        return
    if subject.rig.host.wsl is not None:
        place = subject.document.key(("gpus", "driver"))
        message = "the driver of a GPU under WSL is Windows' own, and a driver inside Linux would conflict with it"
        yield INSIDE_WSL.at(place, message, "leave out `driver`, and install NVIDIA's driver for Windows there")
        return
    declared = DeclaredDriver(subject, gpus, gpus.driver, one_of_each(gpus.cards))
    checks = (_too_old, _unknown_to_it, _other_modules, _not_in_distribution)
    wrong = [finding for check in checks for finding in check(declared)]
    yield from wrong
    if not wrong:
        yield from _ended(declared)


DRIVER_TOO_OLD = Rule(
    "LH045",
    "The driver is too old for the CUDA toolkit.",
    why="CUDA 11 needs branch 450, CUDA 12 needs 525, CUDA 13 needs 580, or newer.",
    example="""
    gpus:
      driver: {branch: 550}
      cuda: "13.0"
    """,
    fix="""
    write `branch: 580`: it supports every GPU from Maxwell to Blackwell, and CUDA 13. Or write an older toolkit.
    """,
)


def _too_old(declared: DeclaredDriver) -> Iterator[Finding]:
    branch, cuda = declared.branch, declared.gpus.cuda
    release = toolchains.release(cuda)
    rig = declared.subject.rig
    uses_cuda = bool(built_with_cuda(rig)) or has_cuda_release(rig)
    needed = toolchains.FIRST_DRIVER.get(release[0]) if release and uses_cuda else None
    if needed and branch < needed:
        message = f"driver branch {branch} is too old for CUDA {cuda}, which needs {needed} or newer"
        yield DRIVER_TOO_OLD.at(declared.place, message, _LASTING)


UNKNOWN_TO_DRIVER = Rule(
    "LH046",
    "The driver does not support a GPU.",
    why="""
    Branch 570 is the first that supports Blackwell (RTX 50). Branch 590 dropped Maxwell, Pascal and Volta. Branch 470
    was the last for Kepler (K80, GTX 780).
    """,
    example="""
    gpus:
      driver: {branch: 590}
      cuda: "12.9"
      cards:
        big: {model: GTX 1080 Ti}
    instances:
      coder: {model: small, draft: null}
    """,
    fix="write the branch that the help line gives.",
)


def _unknown_to_it(declared: DeclaredDriver) -> Iterator[Finding]:
    branch = declared.branch
    for name, card in declared.cards.items():
        number = int(card.cuda_architecture.rstrip("af"))
        what = f"driver branch {branch} does not support `{name}` ({card.model})"
        if number >= toolchains.BLACKWELL and branch < toolchains.BLACKWELL_DRIVER:
            message = f"{what}: the first that does is {toolchains.BLACKWELL_DRIVER}"
            yield UNKNOWN_TO_DRIVER.at(declared.place, message, _LASTING)
        elif number < toolchains.KEPLER and branch > toolchains.KEPLER_DRIVER:
            message = f"{what} any more: {toolchains.KEPLER_DRIVER} was the last that did"
            help_ = "leave it out of the rig: no branch that NVIDIA maintains supports it"
            yield UNKNOWN_TO_DRIVER.at(declared.place, message, help_)
        elif toolchains.KEPLER <= number < toolchains.TURING and branch >= toolchains.DROPPED_DRIVER:
            message = f"{what} any more: {toolchains.DROPPED_DRIVER} dropped it"
            if branch >= OPEN_ONLY:
                message += f", and since {OPEN_ONLY} there are only open kernel modules, which need Turing or newer"
            yield UNKNOWN_TO_DRIVER.at(declared.place, message, _LASTING)


OTHER_MODULES = Rule(
    "LH058",
    "The driver's kernel modules do not support the GPUs.",
    why="""
    A kernel loads one driver, with modules of one kind. Maxwell, Pascal and Volta need the proprietary modules.
    Blackwell (RTX 50) needs the open ones. From branch 615 on there are only open ones.
    """,
    example="""
    gpus:
      driver: {branch: 580, modules: proprietary}
      cuda: "13.0"
      cards:
        big: {model: RTX 5090}
    """,
    fix="""
    leave `modules` out: llamaherd takes the kind that all GPUs work with. A GTX 1080 Ti and an RTX 5090 cannot be
    in one rig.
    """,
)


def _other_modules(declared: DeclaredDriver) -> Iterator[Finding]:
    """Report GPUs that need modules of two kinds: a kernel has one driver, with modules of one kind."""
    cards, branch = declared.gpus.cards, declared.branch
    numbers = {name: int(card.cuda_architecture.rstrip("af")) for name, card in declared.cards.items()}
    old = next((name for name, number in numbers.items() if number < toolchains.TURING), None)
    new = next((name for name, number in numbers.items() if number >= toolchains.BLACKWELL), None)
    wanted = declared.driver.modules
    place = declared.subject.document.value(("gpus", "driver", "modules")) if wanted else declared.place
    if old and new:
        message = f"`{old}` takes proprietary kernel modules only and `{new}` open ones only; a kernel loads one kind"
        yield OTHER_MODULES.at(place, message, "leave one of the two out, or put it into another rig")
    elif wanted == "open" and old:
        message = f"`{old}` ({cards[old].model}) does not work with the open kernel modules"
        yield OTHER_MODULES.at(place, message, "leave `modules` out, or write `modules: proprietary`")
    elif wanted == "proprietary" and new:
        message = f"`{new}` ({cards[new].model}) works with the open kernel modules only"
        yield OTHER_MODULES.at(place, message, "leave `modules` out, or write `modules: open`")
    elif wanted == "proprietary" and branch >= OPEN_ONLY:
        message = f"driver branch {branch} has no proprietary kernel modules: {OPEN_ONLY} dropped them"
        yield OTHER_MODULES.at(place, message, "leave `modules` out, or write `branch: 580`")


NOT_IN_DISTRIBUTION = Rule(
    "LH059",
    "The distribution does not have the declared branch of the driver.",
    why="""
    Debian 12 has branch 535 only and Debian 13 has 550 only: an error. Ubuntu has several and adds new ones: a branch
    that llamaherd does not list is a warning.
    """,
    example="""
    host: {os: debian-13}
    gpus:
      driver: {branch: 580, from: distribution}
    """,
    fix="""
    leave `from` out, so that the driver comes from NVIDIA's repository, or write a branch that the distribution
    has.
    """,
    sometimes=("warning",),
)


def _not_in_distribution(declared: DeclaredDriver) -> Iterator[Finding]:
    """Report branches that the distribution lacks: Debian has one in each release; Ubuntu has several, and adds new
    ones.
    """
    if declared.driver.from_ != "distribution":
        return
    os, branch = declared.subject.rig.host.os, declared.branch
    own, listed = OWN_BRANCH.get(os), UBUNTU_BRANCHES.get(os, frozenset())
    if own and branch != own:
        message = f"{os} itself has driver branch {own} and no other, the rig requires {branch}"
        help_ = f"leave `from` out, so that it comes from NVIDIA, or write `branch: {own}`"
        yield NOT_IN_DISTRIBUTION.at(declared.place, message, help_)
    elif listed and branch not in listed:
        message = f"driver branch {branch} was not among those of {os} when this was written"
        help_ = f"write one of {', '.join(map(str, sorted(listed)))}, or leave `from` out"
        yield NOT_IN_DISTRIBUTION.at(declared.place, message, help_, "warning")


ENDED_BRANCH = Rule(
    "LH047",
    "NVIDIA no longer supports a driver branch.",
    why="""
    It gets no security fixes. NVIDIA's list of November 2026 has 580 (until June 2028), 595 (until March 2027) and 620
    (until September 2029). Branches between them, such as 615, are short-lived. A distribution maintains its own branch
    (`from: distribution`).
    """,
    example="""
    gpus:
      driver: {branch: 535}
      cuda: "12.9"
    """,
    fix="""
    write a branch that is supported. 580 supports every GPU from Maxwell to Blackwell. 620 is supported longest, for
    Turing (RTX 20) and newer alone.
    """,
    severity="note",
)


def _ended(declared: DeclaredDriver) -> Iterator[Finding]:
    """Report a branch that gets no fixes any more. A distribution maintains its own."""
    if declared.driver.from_ == "distribution":
        return
    branch, ended = declared.branch, toolchains.ENDED_BRANCHES.get(declared.branch)
    if ended:
        message = f"NVIDIA supported driver branch {branch} until {ended}"
        yield ENDED_BRANCH.at(declared.place, message, _LASTING)
    elif branch < toolchains.NEWEST_LISTED and branch not in toolchains.SUPPORTED_BRANCHES:
        message = f"driver branch {branch} is not among those that NVIDIA supported in November 2026"
        yield ENDED_BRANCH.at(declared.place, message, _LASTING)
