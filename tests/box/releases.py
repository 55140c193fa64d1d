"""What a host remembers of runs, and a change that adds to it."""

from __future__ import annotations

from tests.box.bench import Bench, Declared
from tests.support.envelope import the_rig


def releases(bench: Bench) -> list[Declared]:
    """What the host tells of its releases, the oldest first."""
    ended = bench.herd("history", "box", "--json")
    assert ended.code == 0, ended.output
    rig = the_rig(ended.output)
    found: list[Declared] = rig["releases"]
    return found


def shrink(bench: Bench, context: int) -> None:
    """A change that one restart of `chat` makes."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = context
    bench.declare(rig)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output


def context(bench: Bench) -> int:
    """What `chat` runs with."""
    return int(
        bench.sh("tr '\\0' '\\n' </proc/$(systemctl show -P MainPID llama-chat)/cmdline | sed -n '/^--ctx-size$/{n;p}'")
    )
