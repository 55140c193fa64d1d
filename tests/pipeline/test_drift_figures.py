"""Figures of a look: what is not known of a rig has none."""

from __future__ import annotations

from typing import Any

from llamaherd.pipeline.diff import METRICS, SavedChange, SavedRig, metrics_text


def rig(*changes: SavedChange, **more: Any) -> SavedRig:
    """A rig as it was shown."""
    declared = {"rig": "duo", "plan": "0" * 64, "diffs": {}, "problems": (), "unreached": "", **more}
    return SavedRig(changes=changes, **declared)


def change(**causes: Any) -> SavedChange:
    """A change with its causes."""
    return SavedChange(action="restart", kind="server", name="llama-chat", reasons=("why",), **causes)


def told(each: SavedRig) -> dict[str, str]:
    """What is told of it, by figure."""
    lines = [line.split('{rig="duo"} ') for line in metrics_text([each], 7).splitlines() if '{rig="duo"}' in line]
    return {name.removeprefix("llamaherd_diff_"): value for name, value in lines}


def test_changes_are_counted_by_who_has_moved() -> None:
    found = rig(
        change(drift=("a",), inventory=()), change(drift=(), inventory=("b",)), change(drift=("a",), inventory=("b",))
    )
    assert told(found) == {
        "seen_seconds": "7",
        "failed": "0",
        "changes": "3",
        "drift_changes": "2",
        "inventory_changes": "2",
    }


def test_where_nobody_can_say_who_has_moved_nothing_says_so() -> None:
    assert told(rig(change())) == {"seen_seconds": "7", "failed": "0", "changes": "1"}


def test_a_rig_that_could_not_be_seen_is_only_told_to_have_failed() -> None:
    assert told(rig(unreached="it is off")) == {"failed": "1"}
    assert told(rig(problems=("there is no room",))) == {"failed": "1"}


def test_every_figure_is_explained_once() -> None:
    text = metrics_text([rig(), rig(rig="porch")], 7)
    helped = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert helped == list(METRICS)
    assert text.count('{rig="porch"}') == 5
