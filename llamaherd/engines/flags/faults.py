"""Arguments that a build is known to fail with, and flags that a newer version than all catalogues is known to lack."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.meant import Meant
from llamaherd.engines.flags.model import Catalogue
from llamaherd.reference.bad_builds import BadBuild, bad_builds

BAD_BUILD = Rule(
    "LH177",
    "An engine's build has a known fault with what a server is told.",
    why="""
    llama.cpp b10741 to b10748 do not start with `draft-mtp` (ggml-org/llama.cpp#28196). Toolkits with known faults
    are reported by LH042.
    """,
    example="""
    engines:
      main: {ref: b10745}
    """,
    way_out="write a newer build, as the help line says.",
    severity="warning",
)


def faulty(catalogue: Catalogue) -> tuple[BadBuild, ...]:
    """Return the known faults of the version that was asked for."""
    return bad_builds(catalogue.asked or catalogue.version) if catalogue.kind == "llama.cpp" else ()


def faults(meant: Meant, _around: Around) -> Iterator[Clash]:
    """Report each option with which the build is known to fail."""
    for bad in faulty(meant.catalogue):
        option = meant.get(bad.flag)
        if option and bad.value in option.value.split(","):
            message = f"{bad.named} of llama.cpp {bad.fault} with `{bad.value}` ({bad.source})"
            yield Clash(BAD_BUILD, (option,), message, f"write `ref: b{bad.last + 1}` or a newer build")
