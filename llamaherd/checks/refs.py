"""Names of versions that an engine's own repository does not have: said before anybody asks the network."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS
from llamaherd.inventory.schema.software import UPSTREAM

NOT_THERE = frozenset(
    ("latest", "newest", "stable", "release", "nightly", "trunk", "default", "head", "main", "master")
)
"""What the newest version is called elsewhere, and by one of them."""


NO_REF = Rule(
    "LH275",
    "The engine's repository has no version of this name.",
    why="""
    `latest` and `stable` are names of images. ik_llama.cpp has a branch `main`, and llama.cpp's is called
    `master`.
    """,
    example="""
    engines:
      main: {kind: llama.cpp, ref: latest}
    """,
    way_out="""
    write a tag such as `b11434`. Or write the branch of the help line: `herd lock` resolves it once and writes it
    down.
    """,
)


def refs(subject: RigContext) -> Iterator[Finding]:
    """Refs that other repositories have."""
    for name, engine in subject.rig.engines.items():
        source, branch = engine.source, TRAITS[engine.kind].branch
        if branch is None or source is None or source.ref is None or source.git != UPSTREAM[engine.kind]:
            continue
        ref, number = source.ref, re.fullmatch(r"[vVB]-?([0-9]{4,6})", source.ref)
        bare = re.sub(r"^(refs/(tags|heads)|origin|tags|heads)/|[./]+$", "", ref)
        key = "ref" if engine.ref else "source"
        where = ("engines", name, key) if engine.ref else ("engines", name, key, "ref")
        if ref.lower() in NOT_THERE and ref != branch:
            help_ = f"did you mean `ref: {branch}`, the newest at the time of `herd lock`?"
        elif number and TRAITS[engine.kind].numbers_builds:
            help_ = f"did you mean `ref: b{number[1]}`?"
        elif bare and bare != ref:
            help_ = f"did you mean `ref: {bare}`?"
        elif re.fullmatch(r"(?!b[0-9]+$)(?=.*[0-9])[0-9a-f]{7,39}", ref):
            help_ = "for a commit, give all 40 digits of it: `git rev-parse` shows them"
        else:
            continue
        message = f"{engine.kind} has no tag and no branch `{ref}`"
        yield NO_REF.at(subject.document.value(where), message, help_)
