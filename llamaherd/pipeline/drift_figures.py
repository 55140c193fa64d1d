"""What a look has found, as figures that Prometheus reads: the text of a file for its exporter's textfile collector.

What a look does not know has no figure: of a host that could not be asked there is that alone, and where no run has
left a release, nobody can say which side has moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.pipeline.saved import SavedRig

FIGURES = {
    "llamaherd_diff_seconds": "When herd diff looked, in seconds since 1970.",
    "llamaherd_diff_seen_seconds": "The same, of a host that could be seen.",
    "llamaherd_diff_failed": "Whether a host could not be asked, or cannot become as planned.",
    "llamaherd_diff_changes": "Changes that herd up would make.",
    "llamaherd_diff_drift_changes": "Those for which the host has moved.",
    "llamaherd_diff_inventory_changes": "Those for which the inventory has moved.",
}
"""Their names, each with what it is."""


def figures(rigs: Sequence[SavedRig], at: int) -> str:
    """The text of the file, for a look at `at`, in seconds since 1970."""
    told = [("llamaherd_diff_seconds", f" {at}"), *(each for rig in rigs for each in _of_rig(rig, at))]
    lines: list[str] = []
    for name, meaning in FIGURES.items():
        if of_it := [f"{name}{rest}" for figure, rest in told if figure == name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *of_it]
    return "".join(f"{line}\n" for line in lines)


def _of_rig(rig: SavedRig, at: int) -> Iterator[tuple[str, str]]:
    """The figures of one rig; the names of rigs are words that need no quoting."""
    labels = f'{{rig="{rig.rig}"}}'
    failed = bool(rig.unreached or rig.problems)
    yield "llamaherd_diff_failed", f"{labels} {int(failed)}"
    if failed:
        return
    yield "llamaherd_diff_seen_seconds", f"{labels} {at}"
    yield "llamaherd_diff_changes", f"{labels} {len(rig.changes)}"
    if all(change.drift is not None for change in rig.changes):
        yield "llamaherd_diff_drift_changes", f"{labels} {sum(bool(change.drift) for change in rig.changes)}"
        yield "llamaherd_diff_inventory_changes", f"{labels} {sum(bool(change.inventory) for change in rig.changes)}"
