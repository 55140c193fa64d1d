"""Whatever is written as an inventory gets findings or a plan, and never an exception."""

from __future__ import annotations

import copy
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.lock.apply import NotLockedError
from llamaherd.pipeline.fleet_files import examine_fleet
from tests.support.examples import EXAMPLES, fleet, locked
from tests.support.ours import plan, show_plan

DATA = {name: read_yaml(EXAMPLES / f"{name}.yaml").data for name in fleet().rigs}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["0", "-1", "100%", "75%", "all", "b11434", "main", "GPU-1", "0000:01:00.0", "64GB", "1e9", "[", "\0"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [
        *(
            "--flash-attn",
            "-fa",
            "on",
            "-ngl",
            "99",
            "-ot",
            "exps=CPU",
            "--no-mmap",
            "-sm",
            "row",
            "graph",
            "--mtp-draft",
        ),
        *("2", "-c", "32k", "--host", "0.0.0.0", "--api-key", "secret", "--ctx_size", "--temp=1", "-h", "'", "--"),
    ]
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here] + [path for key, each in inner for path in paths(each, (*here, key))]


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """One of the five rigs with some values replaced, taken out, added, or swapped for others of it."""
    data = copy.deepcopy(DATA[draw(st.sampled_from(sorted(DATA)))])
    for _ in range(draw(st.integers(1, 4))):
        every = [path for path in paths(data) if path]
        if not every:
            break
        path = draw(st.sampled_from(every))
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        match draw(st.sampled_from(["replace", "remove", "swap", "add", "words"])):
            case "replace":
                inner[path[-1]] = draw(VALUES)
            case "remove":
                del inner[path[-1]]
            case "swap":
                other: Any = data
                for key in draw(st.sampled_from(every)):
                    other = other[key]
                inner[path[-1]] = copy.deepcopy(other)
            case "add" if isinstance(inner, dict):
                inner[draw(st.text(max_size=8))] = draw(VALUES)
            case "words" if isinstance(inner[path[-1]], dict):
                inner[path[-1]]["extra_args"] = draw(st.lists(WORDS, max_size=5))
    return data


def judged(text: str) -> str:
    """`findings` or `plan`, or whatever is raised instead."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rig.yaml"
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        shutil.copy(EXAMPLES / "duo.yaml", folder)  # which one of the others takes models from
        rigs, findings = examine_fleet(file, locked())
        for finding in findings:
            assert finding.message
            assert finding.help
            assert finding.place.line >= 0
        if any(finding.severity == "error" for finding in findings):
            return "findings"
        for rig in rigs.rigs.values():
            with suppress(NotLockedError):  # what it names now is not what the lock holds
                assert show_plan(plan(rig, locked()))
        return "plan"


LONG = settings(max_examples=max(150, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])


@LONG
@given(mutations())
@example(DATA["one"] | {"engines": {"main": {"kind": {"a": 1}, "ref": "b1"}}})
def test_a_rig_with_mistakes(data: dict[str, Any]) -> None:
    assert judged(yaml.safe_dump(data)) in ("findings", "plan")


@LONG
@given(VALUES)
def test_any_document(data: Any) -> None:
    assert judged(yaml.safe_dump(data)) in ("findings", "plan")


@LONG
@given(st.text(max_size=200))
@example("a: *a")
@example("&a [*a]")
@example("{" * 3000)
@example("rig: x\nextends: x\n")
def test_any_text(text: str) -> None:
    assert judged(text) in ("findings", "plan")


def test_the_rigs_themselves_are_planned() -> None:
    assert {judged((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")) for name in DATA} == {"plan"}
