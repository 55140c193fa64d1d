"""What rules over arguments as meant are given, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llamaherd.diagnostics.findings import Finding, Place, Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.meant import Meant, Option


@dataclass(frozen=True)
class Around:
    """What is known of where a server runs; None for what is not."""

    cards: int | None = None
    """How many GPUs it sees."""
    cores: int | None = None
    """Physical cores of the processor."""
    reachable: bool | None = None
    """Whether others than its own host reach it; None where its own address tells."""
    keyed: bool = False
    """Whether it asks for a key that its arguments do not show."""
    tensors: tuple[str, ...] = ()
    """The names of the model's tensors, as far as they are known."""
    shifts: bool | None = None
    """Whether parts of the model's cache can be moved to other positions."""
    trained: int | None = None
    """Tokens of the context that the model was trained for."""
    pools: str | None = None
    """How the model pools embeddings, as `--pooling` has it."""
    causal: bool | None = None
    """Whether its tokens see only those before them."""
    cached: bool | None = None
    """Whether the engine keeps keys and values of it."""
    model: str = ""
    """What the model is called, where its arguments have no flag for it."""
    experts_moved: bool = False
    """Whether an override of llamaherd's own, which comes first, keeps experts on the CPU."""


@dataclass(frozen=True)
class Clash:
    """Options that contradict each other or the rig; it is said of the first one."""

    rule: Rule
    options: tuple[Option, ...]
    message: str
    help: str
    unusual: Severity | None = None
    """How bad it is where it is not what the rule says first."""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.rule.graded(self.unusual)

    def at(self, place: Place) -> Finding:
        """The same as a finding."""
        return self.rule.at(place, self.message, self.help, self.unusual)


Finder = Callable[[Meant, Around], Iterator[Clash]]
