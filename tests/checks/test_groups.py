"""Groups: what cannot be one server, and what that must not be confused with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.checking import Case, assert_said, findings_of

ONE = {"engine": "main", "model": "35b", "on": ["new"], "context": 8192, "port": 8010, "group": "card"}
TWO = ONE | {"model": "gemma", "context": 4096}
PAIR: dict[str, Any] = {"instances/one": ONE, "instances/two": TWO}


def pair(**other: Any) -> dict[str, Any]:
    """The group, its second instance with other keys."""
    return PAIR | {"instances/two": TWO | other}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(PAIR), id="two that go together, at one port"),
        pytest.param(Case(pair(kv="q8_0", parallel=2, sampling={"seed": 1}, extra_args="--no-slots")), id="may differ"),
        pytest.param(
            Case({"instances/one": ONE}, "LH340", "card", "has no instance but `one`", "give another instance"),
            id="alone",
        ),
        pytest.param(
            Case(pair(model="35b"), "LH342", "35b", "both serve `35b`", "leave one out"), id="the same model twice"
        ),
        pytest.param(Case(pair(port=8011), "LH342", "8011", "differ in `port`", "the same `port`"), id="ports"),
        pytest.param(Case(pair(on=["old"]), "LH342", "- old", "differ in `on`", "the same `on`"), id="GPUs"),
        pytest.param(
            Case(pair(environment={"A": "1"}), "LH342", "A:", "differ in `environment`"), id="what children inherit"
        ),
        pytest.param(Case(pair(api_key={"env": "K"}), "LH342", "env", "differ in `api_key`"), id="keys"),
        pytest.param(
            Case(pair(gate={"decode": "-3%"}), "LH343", "decode", "its gate compares", "take `gate` out"), id="a gate"
        ),
        pytest.param(
            Case(pair(extra_args=["--chat-template", "{# a #}x"]), "LH343", "- --chat", "ends the value"),
            id="what a preset file ends",
        ),
        pytest.param(
            Case(
                PAIR
                | {
                    "instances/card": TWO | {"port": 8012, "group": "other"},
                    "instances/last": ONE | {"group": "other", "port": 8012},
                },
                "LH341",
                "card",
                "has the name of an instance",
                "call the group something else",
            ),
            id="a group that has the name of an instance",
        ),
    ],
)
def test_groups(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)


def test_a_slip_of_the_fingers_is_asked_about(tmp_path: Path) -> None:
    changes = PAIR | {"instances/three": ONE | {"model": "gemma", "group": "crad", "port": 8011}}
    assert_said(Case(changes, "LH340", "crad", "no instance but `three`", "did you mean `group: card`?"), tmp_path)


@pytest.mark.parametrize(
    ("engine", "why"),
    [("ik", "ik_llama.cpp has no router"), ("image", "it is a container")],
)
def test_only_units_of_an_engine_that_has_a_router(engine: str, why: str, tmp_path: Path) -> None:
    backend = {"backend": "compose"} if engine == "image" else {}
    changes = {f"instances/{name}": each | {"engine": engine} | backend for name, each in (("one", ONE), ("two", TWO))}
    found = [each for each in findings_of(Case(changes).declared(), tmp_path) if each.code == "LH343"]
    assert len(found) == 2
    assert why in found[0].message


def test_a_version_that_ends_requests_is_warned_of(tmp_path: Path) -> None:
    changes = PAIR | {
        "engines/main": {
            "kind": "llama.cpp",
            "flags": "b9592",
            "source": {"git": "https://git.lan/l", "commit": "cd" * 20},
        }
    }
    case = Case(changes, "LH343", "card", "ends the running requests", "July 2026", severity="warning")
    assert_said(case, tmp_path)
