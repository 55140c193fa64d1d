"""Where a flag comes from that an engine's version does not have."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.model import Catalogue
from llamaherd.engines.flags.translations import FORMERLY

UNKNOWN_FLAG = Rule(
    "LH100",
    "No engine that is known here has such a flag.",
    why="""
    It is misspelt, or was made up: the engine does not start. `--mtp-draft` is such a one. It is a warning where
    not all flags of the version are known. It is a note where the version is newer than all that are known here: the
    built engine decides, before a server is switched.
    """,
    example="""
    instances:
      coder: {extra_args: [--mtp-draft, "2"]}
    """,
    way_out="write what the help line gives: a key of the inventory, or the right spelling.",
    sometimes=("warning", "note"),
)


REMOVED_FLAG = Rule(
    "LH101",
    "This version of the engine no longer has a flag, or does not have it yet.",
    why="""
    llama.cpp renamed and removed several in 2026: `--no-mmap` became `--load-mode none`, `--draft-max` became
    `--spec-draft-n-max`. It is a warning where not all flags of the version are known.
    """,
    example="""
    instances:
      coder: {extra_args: --draft-min 2}
    """,
    way_out="write the spelling of this version, which the help line gives.",
    sometimes=("warning",),
)


FOREIGN_FLAG = Rule(
    "LH102",
    "A flag is another engine's.",
    why="llama.cpp and ik_llama.cpp have one origin and many flags that only one of them has.",
    example="""
    instances:
      coder: {extra_args: [-rtr]}
    """,
    way_out="""
    write what this engine calls it. Leave it out where the engine does so by itself. Or use the other engine.
    """,
    sometimes=("warning",),
)


def origin(catalogue: Catalogue, other: Sequence[Catalogue], spelling: str) -> tuple[Rule, str]:
    """The rule that such a flag is a finding of, and the words for a sentence."""
    here, there = (
        [one for one in other if (one.kind == catalogue.kind) is same and one.knows(spelling)] for same in (True, False)
    )
    if here:
        return REMOVED_FLAG, f"{here[-1]} has it, {catalogue} does not"
    if there:
        kinds = " and ".join(sorted({one.kind for one in there}))
        return FOREIGN_FLAG, f"it is a flag of {kinds}"
    if former := FORMERLY.get(spelling):
        return REMOVED_FLAG if former == catalogue.kind else FOREIGN_FLAG, f"it was a flag of {former}"
    return UNKNOWN_FLAG, "no known engine has it"
