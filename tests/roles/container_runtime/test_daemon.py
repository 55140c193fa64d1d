"""Docker's settings with our keys put in: what is not ours comes out as it went in, and twice is once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.container_runtime import SettingsError, merge, read_daemon

NAMES = (
    st.sampled_from(["log-opts", "runtimes", "features", "cdi", "nvidia", "path", "args", "dns", "é", ""]) | st.text()
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=12)
MAPPINGS = st.dictionaries(NAMES, VALUES)
RUNTIMES = st.dictionaries(NAMES, MAPPINGS)
SETTINGS = st.builds(
    lambda rest, own: {**rest, **own},
    MAPPINGS.map(lambda rest: {key: value for key, value in rest.items() if key not in ("runtimes", "features")}),
    st.fixed_dictionaries({}, optional={"runtimes": RUNTIMES, "features": st.dictionaries(NAMES, st.booleans())}),
)


def without_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """All but what is ours to say; a mapping that only we made is none."""
    rest = {key: value for key, value in settings.items() if key not in ("runtimes", "features")}
    others = {name: value for name, value in settings.get("runtimes", {}).items() if name != "nvidia"}
    own = {
        key: value
        for key, value in settings.get("runtimes", {}).get("nvidia", {}).items()
        if key not in ("path", "args")
    }
    features = {name: value for name, value in settings.get("features", {}).items() if name != "cdi"}
    return {**rest, "other runtimes": others, "own": own, "other features": features}


@given(SETTINGS, st.booleans(), st.sampled_from([None, 1, 2, 4, "\t"]), st.booleans())
def test_what_is_not_ours_comes_out_as_it_went_in_and_twice_is_once(
    settings: dict[str, Any], cdi: bool, indent: Any, ascii_only: bool
) -> None:
    before = json.dumps(settings, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    merged = merge(before, cdi=cdi)
    again = read_daemon(merged)
    assert without_ours(again) == without_ours(read_daemon(before))
    assert list(again)[: len(read_daemon(before))] == list(read_daemon(before))
    assert again["runtimes"]["nvidia"]["path"].rpartition("/")[2] == "nvidia-container-runtime"
    if cdi or "cdi" in settings.get("features", {}):
        assert again["features"]["cdi"] is True
    assert merge(merged, cdi=cdi) == merged


@pytest.mark.parametrize("before", [None, b"", b" \n", b"{}"])
def test_nothing_becomes_what_is_needed(before: bytes | None) -> None:
    assert json.loads(merge(before, cdi=True)) == {
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
        "features": {"cdi": True},
    }


def test_what_is_there_already_stays_byte_for_byte() -> None:
    """As NVIDIA's own tool writes it, and as people do."""
    before = b'{"runtimes":{"nvidia":{"path":"/usr/bin/nvidia-container-runtime"}} ,\n\n "features" : {"cdi":true}}'
    assert merge(before, cdi=True) == before


def test_it_is_indented_as_before() -> None:
    assert merge(b'{\n\t"dns": []\n}', cdi=False).splitlines()[1] == b'\t"dns": [],'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": 1 "b": 2}', "line 1, column 9"),
        (b'{"a": 1,\n  // no\n}', "line 2, column 3: expecting property name enclosed in double quotes"),
        (b'{"dns": ["1.1.1.1"', "line 1, column 19"),
        (b'\xef\xbb\xbf{"a": 1}', "line 1, column 1: unexpected UTF-8 BOM"),
        (b"\xff\xfe{", "no UTF-8 at byte 0"),
        (b"[]", "holds no mapping"),
        (b'"x"', "holds no mapping"),
        (b'{"runtimes": []}', "`runtimes` in /etc/docker/daemon.json is no mapping"),
        (b'{"features": null}', "`features` in /etc/docker/daemon.json is no mapping"),
        (b'{"runtimes": {"nvidia": "runc"}}', "`runtimes.nvidia` in /etc/docker/daemon.json is no mapping"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": 1e999}', "1e999 is no number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no number"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_settings_is_refused_with_its_place(content: bytes, said: str) -> None:
    with pytest.raises(SettingsError) as error:
        merge(content, cdi=True)
    assert said in str(error.value)
    assert str(error.value).count("\n") == 0


@given(st.binary() | st.text().map(str.encode))
def test_whatever_lies_there_is_merged_or_refused(content: bytes) -> None:
    try:
        merged = merge(content, cdi=True)
    except SettingsError:
        return
    assert merge(merged, cdi=True) == merged
