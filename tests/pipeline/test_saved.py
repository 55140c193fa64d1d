"""Saved diffs: what is held against what, and that whatever lies in a file is refused with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline import diff
from llamaherd.pipeline.diff import (
    Causes,
    SavedDiff,
    SavedRig,
    compare_with_saved,
    parse_saved_diff,
    plan_digest,
    saved_diff_bytes,
    saved_rig,
)
from llamaherd.pipeline.preview import Preview
from llamaherd.role.changes import Change, Downtime, RunScript
from llamaherd.role.values import ValueChange
from tests.support.rigs import KEY, cpu_rig, planned

RIG = Rig.model_validate(cpu_rig())
PLAN = planned(cpu_rig())
AGAIN = "herd plan --save it"


def change(name: str = "chat", *reasons: str, action: Any = "restart", kind: str = "server") -> Change:
    return Change(action, kind, name, reasons or ("it is old",), RunScript(f"key={KEY}"))


def keep(*changes: Change, causes: tuple[Causes, ...] = ()) -> SavedRig:
    return saved_rig(RIG, PLAN, Preview(changes), causes, {"/etc/x": "-a\n+b"}, "")


def written(**other: Any) -> bytes:
    """A file with one thing that is another."""
    value = json.loads(saved_diff_bytes(SavedDiff(rigs=(keep(change()),)), AGAIN))
    return json.dumps(value | other).encode()


def complaint(data: bytes) -> str:
    try:
        parse_saved_diff(data, "monday.json", AGAIN)
    except UserError as error:
        return str(error)
    return "none"


def test_what_was_saved_is_read_again() -> None:
    whole = SavedDiff(rigs=(keep(change(), change("worker"), causes=(Causes(("it is old",)), Causes())),))
    data = saved_diff_bytes(whole, AGAIN)
    assert parse_saved_diff(data, "monday.json", AGAIN) == whole
    assert data.startswith(diff.SAVED_PREFIX)
    value = json.loads(data)
    assert (value["format"], value["llamaherd"]) == (1, __version__)
    assert value["rigs"][0]["changes"][0]["drift"] == ["it is old"]
    assert KEY.encode() not in data


def test_what_has_not_moved() -> None:
    before = keep(change("chat", "one", "two"), change("worker"), causes=(Causes(("one",)), Causes()))
    assert compare_with_saved(before, RIG, PLAN, Preview((change("worker"), change("chat", "two", "one")))) is None


@pytest.mark.parametrize(
    "other",
    [
        change("worker"),
        change("chat", "it is older"),
        change("chat", "it is old", "and slow"),
        change(action="start"),
        change(kind="power"),
    ],
)
def test_a_change_that_is_another(other: Change) -> None:
    found = compare_with_saved(keep(change(), change("same")), RIG, PLAN, Preview((other, change("same"))))
    assert found
    assert (found.rig, found.another_plan) == ("box", False)
    assert list(map(str, found.new)) == [str(other)]
    assert list(map(str, found.gone)) == ["restart server chat: it is old"]


def test_what_moves_by_itself_is_no_other_change() -> None:
    def power(*reasons: str) -> Change:
        return change("new to 280 W", *reasons, kind="power")

    before = keep(power("new: it runs at 1980 MHz", "old: fans run at 63 %"))
    assert (
        compare_with_saved(before, RIG, PLAN, Preview((power("new: it runs at 2010 MHz", "old: fans run at 71 %"),)))
        is None
    )
    before = keep(power("new: its limit is 300 W"))
    assert compare_with_saved(before, RIG, PLAN, Preview((power("new: its limit is 320 W"),)))


def test_how_long_a_server_is_away_does_not_count() -> None:
    kept = keep(replace(change(), away=Downtime(3.2, measured=True)))
    assert kept.shown()["changes"][0]["away"] == {"seconds": 3.2, "measured": True, "beside": False, "gate": 0}
    whole = SavedDiff(rigs=(kept,))
    assert parse_saved_diff(saved_diff_bytes(whole, AGAIN), "monday.json", AGAIN) == whole
    assert compare_with_saved(kept, RIG, PLAN, Preview((replace(change(), away=Downtime(9, measured=False)),))) is None


def test_a_plan_that_is_another() -> None:
    other = planned(cpu_rig(), {"instances/chat/context": 1024})
    found = compare_with_saved(keep(change()), RIG, other, Preview((change(),)))
    assert found
    assert (found.another_plan, found.new, found.gone) == (True, (), ())


def test_the_same_plan_for_another_host_is_another() -> None:
    there = cpu_rig() | {"connect": {"host": "127.0.0.2", "port": 2201, "user": "owner"}}
    assert plan_digest(Rig.model_validate(there), PLAN) != plan_digest(RIG, PLAN)
    other_user = cpu_rig() | {"connect": {"host": "127.0.0.1", "port": 2201, "user": "root"}}
    assert plan_digest(Rig.model_validate(other_user), PLAN) == plan_digest(RIG, PLAN)


def test_a_plan_that_was_read_again_is_the_same() -> None:
    assert plan_digest(RIG, type(PLAN).model_validate_json(PLAN.model_dump_json())) == plan_digest(RIG, PLAN)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends in the middle"),
        (written()[:-1], "ends in the middle"),
        (written()[:200], "ends in the middle"),
        (b"rig: box\n", "monday.json is no saved diff\n"),
        (b"\xff\xfe", "monday.json is no saved diff\n"),
        (b"[]", "monday.json is no saved diff\n"),
        (b"{}", "monday.json is no saved diff\n"),
        (b'{"rigs": []}', "monday.json is no saved diff\n"),
        (written(format="1"), "monday.json is no saved diff\n"),
        (written(format=True), "monday.json is no saved diff\n"),
        (written(format=0), "`format`: "),
        (written(llamaherd=7), "`llamaherd`: "),
        (written(rigs=[]), "`rigs`: "),
        (written(rigs=[json.loads(keep().model_dump_json(exclude_none=True))] * 2), "must name each rig once"),
        (written(rigs=[{"rig": "box"}]), "`rigs.0.plan`: field required"),
        (written(more=1), "`more`: "),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 100_000, "monday.json is no saved diff\n"),
        (written(more=[0] * 100_000), "more than 100,000 values"),
    ],
)
def test_what_is_no_saved_diff_is_refused(data: bytes, said: str) -> None:
    sentence, help_ = complaint(data).split("\n  help: ")
    assert said.rstrip("\n") in sentence
    assert sentence.startswith("monday.json is no saved diff")
    assert "herd plan" in help_


def test_one_of_a_later_version_says_so() -> None:
    said = complaint(written(format=3, llamaherd="9.9.0", rigs="another shape"))
    assert said.startswith("monday.json is a saved diff of format 3, and this llamaherd, ")
    assert "help: use the llamaherd that saved it" in said


def test_more_than_is_read_again_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SavedDiff(rigs=(keep(change()),))
    monkeypatch.setattr(diff, "MOST_SAVED_BYTES", 100)
    with pytest.raises(UserError, match="larger than a saved diff may be"):
        saved_diff_bytes(whole, AGAIN)


def spoil(value: Any, path: list[int], put: Any) -> Any:
    """A value with another in the place that these numbers lead to."""
    if not path or not isinstance(value, dict | list) or not value:
        return put
    if isinstance(value, list):
        at = path[0] % len(value)
        return [*value[:at], spoil(value[at], path[1:], put), *value[at + 1 :]]
    key = list(value)[path[0] % len(value)]
    return value | {key: spoil(value[key], path[1:], put)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(st.integers(0, 9), max_size=6), JSON)
def test_any_value_anywhere_is_read_or_refused(path: list[int], put: Any) -> None:
    data = json.dumps(spoil(json.loads(written()), path, put)).encode()
    assert complaint(data).startswith(("monday.json is ", "none"))


@given(st.binary(max_size=200), st.integers(0, 600))
def test_any_bytes_are_read_or_refused(put: bytes, at: int) -> None:
    data = written()
    for each in (put, data[:at] + put + data[at:], data[:at]):
        assert complaint(each).startswith(("monday.json is ", "none"))


def test_causes_are_no_part_of_what_is_compared() -> None:
    kept = keep(change(), causes=(Causes((), ("it is old",)),))
    assert kept.changes[0].inventory == ("it is old",)
    other = kept.changes[0].model_copy(update={"drift": ("it is old",), "inventory": None})
    assert kept.changes[0].identity == other.identity


def test_a_rig_shows_what_json_has() -> None:
    shown = keep(change()).shown()
    assert list(shown) == ["rig", "changes", "diffs", "problems", "unreached"]
    assert shown["changes"] == [
        {"action": "restart", "kind": "server", "name": "chat", "reasons": ["it is old"], "values": []},
    ]


def test_old_and_new_values_are_shown_and_not_saved() -> None:
    """Earlier versions refuse a file with a key that they do not know."""
    value = ValueChange("--ctx-size", "4096", "8192")
    rig = keep(replace(change(), values=(value,)), causes=(Causes(values=(ValueChange("--mlock", None, ""),)),))
    assert rig.shown()["changes"][0]["values"] == [
        {"key": "--ctx-size", "old": "4096", "new": "8192"},
        {"key": "--mlock", "new": ""},
    ]
    assert b"ctx-size" not in saved_diff_bytes(SavedDiff(rigs=(rig,)), AGAIN)
