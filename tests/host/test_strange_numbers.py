"""What hosts and servers print where a number is read: refused with a sentence, or left out; never an exception."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, cast

import pytest

from benchmarks.mutations import NUMBERS
from llamaherd.bench.arms.host import _seconds
from llamaherd.bench.asking.stream import _number
from llamaherd.bench.importers.base import number as imported
from llamaherd.bench.importers.base import utc
from llamaherd.host.answers import chat, reply
from llamaherd.host.nvidia_smi import find_gpu
from llamaherd.host.protocol import UnaskedError
from llamaherd.host.ssh import RemoteError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.document import dump
from llamaherd.onhost.nvidia_smi import parse_gpu
from llamaherd.pipeline.inspect import state_of
from llamaherd.pipeline.verify import judge
from llamaherd.plan import Plan
from llamaherd.role.report import Report
from roles import ROLES
from tests.support.host_lines import inspected
from tests.support.ours import parse_state
from tests.support.rigs import converged, cpu_rig, planned

FACTS = ('docker\tinfo\t{{"ServerVersion": {}}}',)
GPU = "GPU-1, {}, Enabled, 300.0, 300.0, 100.0, 350.0, 210, [N/A], NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_of_an_inspection(fact: str) -> None:
    for number in NUMBERS:
        with suppress(UnaskedError):
            assert parse_state([fact.format(number)]).machine.memory < 2**74


def test_what_was_not_asked_for_is_shown_in_one_short_line() -> None:
    with pytest.raises(UnaskedError) as caught:
        parse_state([f"kept\t/var\t{'9' * 4301}\x1b[31m\toverlay"])
    assert (len(caught.value.message) < 600, caught.value.message.isprintable()) == (True, True)


def changed_result(path: str, value: object) -> object:
    """Return the result of an inspection with another value somewhere."""
    result = cast("dict[str, Any]", json.loads(dump(inspected(converged(planned(cpu_rig()), {"chat": "key"})))))
    *folders, last = path.split("/")
    at = result
    for name in folders:
        at = at[name]
    at[last] = value
    return result


STRANGE: tuple[object, ...] = (
    10**400,
    -(10**400),
    1 << 64,
    float("nan"),
    float("inf"),
    True,
    None,
    "1",
    "\ud800",
    [],
    {},
    [[]],
    {"a": 1},
)
BASE = "parts/base.inspection.inspect"


@pytest.mark.parametrize("value", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize(
    "path",
    [
        *("files", "parts", "lines", "unknown", BASE, f"{BASE}/os", f"{BASE}/disk", f"{BASE}/disk/free"),
        *(f"{BASE}/listening", f"{BASE}/machine/memory", f"{BASE}/machine/gcc", f"{BASE}/users", f"{BASE}/systemd"),
        *(f"{BASE}/unheard", "files/a"),
    ],
)
def test_what_a_host_returns_is_a_state_or_a_sentence(path: str, value: object) -> None:
    result = changed_result(path, value)
    message, state = "", HostState()
    try:
        state = state_of(result, ROLES)
    except RemoteError as error:
        message = error.message
    assert len(message) < 600
    assert state.machine.memory < 2**63
    json.dumps(sorted(state.users), allow_nan=False).encode()


@pytest.mark.parametrize("pci", ["", "1", "0000:01:00", "0000:01:00.9", "²", "9" * 4301])
def test_a_gpu_has_an_address(pci: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        parse_gpu(GPU.format(pci))


@pytest.mark.parametrize("pci", ["1", "0000:01:00", "0000:01:00.9", f"{'1' * 200}:00.0", "-99:01:00.0", "²:00.0"])
def test_a_gpu_on_the_bus_has_an_address(pci: str) -> None:
    gpu = {"address": pci, "device": "2204", "name": "RTX 3090", "driver": ""}
    with pytest.raises(RemoteError):
        state_of(changed_result(f"{BASE}/machine/cards", [gpu]), ROLES)


@pytest.mark.parametrize("at", ["²", "1²", "9" * 4301, "1"])
def test_no_gpu_has_such_a_number(at: str) -> None:
    assert find_gpu(at, [parse_gpu(GPU.format("00000000:01:00.0"))]) is None


def judged(what: str, text: str) -> Report:
    rig, plan = Rig.model_validate(cpu_rig()), planned(cpu_rig())
    return judge(rig, plan, ROLES, {(what, _of(what, plan)): text})


def _of(what: str, plan: Plan) -> str:
    return plan.instances[0].name if what == "owners" else ""


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("folders", "rwx root /etc/llamaherd"),
        ("folders", "9 root /etc/llamaherd"),
        ("accounts", "llama-chat:x:²:990::/:/usr/sbin/nologin"),
        ("listens", "one two"),
        ("owners", "²\troot\tf\t/usr/bin/x"),
    ],
)
def test_what_no_host_prints_is_a_check_that_fails(what: str, text: str) -> None:
    report = judged(what, text)
    assert not report.ok
    (check,) = [each for each in report.machine if "cannot be read" in each.detail]
    assert check.detail.isprintable()


@pytest.mark.parametrize("number", [10**400, -(10**400), float("nan"), float("inf"), 1e300, True, "1", None])
def test_what_a_server_counts_is_within_bounds(number: object) -> None:
    assert (_number(number), imported(number)) == (None, None)


def test_a_servers_events_of_huge_numbers() -> None:
    event = 'data: {"choices": [{"delta": {"content": "a\\ud800"}}], "timings": {"predicted_n": N, "predicted_ms": N}}'
    for number in ("9" * 4301, "9" * 400, "NaN", "1e999"):
        found = chat(event.replace("N", number))
        assert (found.answer, found.tokens_per_second) == ("", None)
    assert chat(event.replace("N", "9")).answer == "a?"


def test_a_servers_error_is_one_short_line() -> None:
    problem = reply('{"error": {"message": "' + "x\\u001b[31m" * 9000 + '"}}\n500').problem
    assert (len(problem) < 600, problem.isprintable(), problem[:9]) == (True, True, "HTTP 500:")


@pytest.mark.parametrize("said", [[], ["0"], ["0", "²"], ["0", "9" * 4301], ["0", "-1"]])
def test_milliseconds_that_a_host_does_not_tell(said: list[str]) -> None:
    with pytest.raises(UnaskedError):
        _seconds(said, 1)


@pytest.mark.parametrize(
    "at", ["2026-13-45 10:00:00", "0001-01-01 00:00:00", "9999-12-31T23:59:59Z", "२०२६-01-01 10:00:00", 3]
)
def test_a_time_that_there_is_not(at: object) -> None:
    assert utc(at, "otherwise") == "otherwise"
