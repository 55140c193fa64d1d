"""Lines of a search, as its file has them: what is searched, what each candidate came to, what was found. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints

from llamaherd.bench.results.provenance import Count, NotNegative, Positive, Recorded
from llamaherd.bench.results.result import Name
from llamaherd.tune.aim import Aim, Figures
from llamaherd.tune.candidate import Candidate, Value
from llamaherd.tune.likeness import Identity, Likeness
from llamaherd.tune.probe import Sizes
from llamaherd.tune.quality import Limits
from llamaherd.tune.trials import Why

_Word = Annotated[str, StringConstraints(max_length=200)]
_Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
_Key = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}(\.[a-z_]{1,40})?$")]
_Said = bool | _Whole | float | _Word | Annotated[list[float], Field(max_length=64)] | None


def _apart(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys, if none is a mapping and a value at once. Raises ValueError."""
    if both := {key.partition(".")[0] for key in keys if "." in key} & keys.keys():
        raise ValueError(f"{min(both)} is a mapping and a value")
    return keys


Keys = Annotated[dict[_Key, _Said], Field(max_length=64), AfterValidator(_apart)]
"""Keys of an instance, within bounds: lines of YAML can be made of whatever is read."""


class Head(Recorded):
    """What is searched. `identity` is the hash of all that a reading hangs on: build, files, machine, prompts, keys.

    `kind` is the hash of what two rigs have in common of which one can begin with what the other has found; `likeness`
    says it in words, for those who know only a part of it. Searches of before have none.
    `quality` is what coarser types of the cache and other weights may cost, where such are tried; `finest` names the
    weights that others are judged beside. `watts` are the power limits that are
    tried in the end, and `gpus` the names of the GPUs in the inventory.
    """

    line: Literal["head"] = "head"
    format: Literal[1] = 1
    llamaherd: str
    rig: Name
    instance: Name
    began: str
    identity: Identity
    kind: Identity | None = None
    likeness: Likeness | None = None
    aim: Aim
    declared: Keys
    quality: Limits | None = None
    finest: _Word = ""
    gpus: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    watts: Annotated[tuple[Count, ...], Field(max_length=64)] = ()


class Sized(Recorded):
    """How much each candidate is asked, and how fast what is declared read then."""

    line: Literal["sizes"] = "sizes"
    written: Count
    read: Count
    prompts: Count = 1
    prefill: NotNegative = 0.0
    past_end: bool = False

    @classmethod
    def of(cls, sizes: Sizes) -> Self:
        """The line of these."""
        return cls(
            written=sizes.written,
            read=sizes.read,
            prompts=sizes.prompts,
            prefill=sizes.prefill,
            past_end=sizes.past_end,
        )

    @property
    def sizes(self) -> Sizes:
        """How much that is."""
        return Sizes(self.written, self.read, self.prompts, self.prefill, self.past_end)


class Trial(Recorded):
    """A candidate and what came of it. `round` numbers those of the end, in which the best are measured again."""

    line: Literal["trial"] = "trial"
    keys: Keys
    figures: Figures = Figures()
    why: Why | None = None
    says: str = ""
    seconds: NotNegative = 0.0
    round: Count | None = None


class Deep(Recorded):
    """A candidate at the full depth of its context, in one start; `says` is why there are no figures.

    `prefill` is how fast all of that prompt was read, and `decode` how fast each of the answers there was written.
    """

    line: Literal["deep"] = "deep"
    keys: Keys
    depth: Count
    prefill: Positive | None = None
    decode: Annotated[tuple[Positive, ...], Field(max_length=16)] = ()
    says: str = ""
    seconds: NotNegative = 0.0


class Limited(Recorded):
    """What was found, under one power limit in one round. `as_now` is what its GPUs were held to anyway.

    `speed` is the score of the aim, or of a turn where that is efficiency; `joules` are those of a token.
    """

    line: Literal["limit"] = "limit"
    keys: Keys
    watts: Count
    round: Count
    speed: Positive
    joules: Positive
    as_now: bool = False
    seconds: NotNegative = 0.0


class Found(Recorded):
    """The end: the keys that it comes to.

    `cut` is why the pass over the keys was not gone to its end, `shallow` why nothing was measured at the full depth,
    and `unlimited` why no power limit was tried, where any of these was left out.
    """

    line: Literal["found"] = "found"
    keys: Keys
    ended: str
    cut: str = ""
    shallow: str = ""
    unlimited: str = ""


def candidate_of(keys: Keys) -> Candidate:
    """The candidate that keys of a file stand for."""
    return Candidate.of({key: tuple(value) if isinstance(value, list) else value for key, value in keys.items()})


def keys_of(candidate: Candidate) -> Keys:
    """A candidate's keys as a file has them."""

    def said(value: Value) -> bool | int | float | str | list[float] | None:
        return list(value) if isinstance(value, tuple) else value

    return {key: said(value) for key, value in candidate.keys}
