"""What hosts and servers print where a number is read: refused with a sentence, or left out; never an exception."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.mutations import NUMBERS
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.responses import parse_chat, parse_reply
from llamaherd.host.ssh import RemoteError
from llamaherd.host.state import HostState, find_gpu
from llamaherd.inventory.schema import Rig
from llamaherd.measure.client.stream import _number
from llamaherd.measure.results.importers import positive_number as imported
from llamaherd.measure.results.importers import utc_time
from llamaherd.measure.trials.trial import _seconds
from llamaherd.onhost.document import dump
from llamaherd.onhost.hardware import parse_gpu
from llamaherd.pipeline.inspection import state_of
from llamaherd.pipeline.verify import HostFacts, facts_of, judge_host
from llamaherd.role.report import Report
from roles import ROLES
from tests.support.host_lines import inspected
from tests.support.ours import parse_state
from tests.support.rigs import converged, cpu_rig, planned

DATA = Path(__file__).parents[1] / "data"
FACTS = ('docker\tinfo\t{{"ServerVersion": "{}"}}',)
GPU = "GPU-1, {}, Enabled, 300.0, 300.0, 100.0, 350.0, 210, [N/A], NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_of_an_inspection(fact: str) -> None:
    for number in NUMBERS:
        with suppress(UnexpectedLineError):
            assert parse_state([fact.format(number)]).machine.memory < 2**74


def test_what_was_not_asked_for_is_shown_in_one_short_line() -> None:
    with pytest.raises(UnexpectedLineError) as caught:
        parse_state([f"odd\t/var\t{'9' * 4301}\x1b[31m\toverlay"])
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
BASE = "parts/base.inspect"
OTHERS = (
    *("models.store.inspect/store", "models.store.inspect/store/free", "models.store.inspect/stored"),
    *("models.store.inspect/verified", "models.store.inspect/kept", "models.store.inspect/fetch"),
    *("engines.inspect/builds", "engines.inspect/sources", "engines.inspect/flags"),
    *("container_runtime.inspect/daemon", "container_runtime.inspect/daemon/version"),
    *("container_runtime.inspect/packages", "container_runtime.inspect/settings", "power.inspect"),
)


@pytest.mark.parametrize("value", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize(
    "path",
    [
        *("files", "parts", "lines", "unknown", BASE, f"{BASE}/os", f"{BASE}/disk", f"{BASE}/disk/free"),
        *(f"{BASE}/listening", f"{BASE}/machine/memory", f"{BASE}/machine/gcc", f"{BASE}/users", f"{BASE}/systemd"),
        *(f"{BASE}/unheard", "files/a", *(f"parts/{each}" for each in OTHERS)),
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
    return judge_host(rig, plan, ROLES, HostFacts({(what, ""): text}))


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("folders", "rwx root /etc/llamaherd"),
        ("folders", "9 root /etc/llamaherd"),
        ("accounts", "llama-chat:x:²:990::/:/usr/sbin/nologin"),
    ],
)
def test_what_no_host_prints_is_a_check_that_fails(what: str, text: str) -> None:
    report = judged(what, text)
    assert not report.ok
    (check,) = [each for each in report.machine if "cannot be read" in each.detail]
    assert check.detail.isprintable()


VERIFIED = "parts/serve.verification.verify"
CHAT = f"{VERIFIED}/servers/chat"


@pytest.mark.parametrize("value", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize(
    "path",
    [
        *("texts", "parts", "unknown", "lines", VERIFIED, f"{VERIFIED}/listening", f"{VERIFIED}/images", CHAT),
        *(f"{CHAT}/unit", f"{CHAT}/unit/pid", f"{CHAT}/process/argv", f"{CHAT}/owned", f"{CHAT}/access"),
        *(f"{CHAT}/responses/health", f"{CHAT}/on_gpus/pids", f"{CHAT}/container", f"{CHAT}/runs_program"),
    ],
)
def test_what_a_verification_returns_is_a_report_or_a_sentence(path: str, value: object) -> None:
    result = json.loads((DATA / "verify-box.json").read_text(encoding="utf-8"))
    *folders, last = path.split("/")
    at = result
    for name in folders:
        at = at[name]
    at[last] = value
    message, shown = "", ""
    try:
        report = judge_host(Rig.model_validate(cpu_rig()), planned(cpu_rig()), ROLES, facts_of(result, ROLES))
        shown = json.dumps(report.as_json(), allow_nan=False)
    except RemoteError as error:
        message = error.message
    assert len(message) < 600
    assert message or shown.encode()


@pytest.mark.parametrize("number", [10**400, -(10**400), float("nan"), float("inf"), 1e300, True, "1", None])
def test_what_a_server_counts_is_within_bounds(number: object) -> None:
    assert (_number(number), imported(number)) == (None, None)


def test_a_servers_events_of_huge_numbers() -> None:
    event = 'data: {"choices": [{"delta": {"content": "a\\ud800"}}], "timings": {"predicted_n": N, "predicted_ms": N}}'
    for number in ("9" * 4301, "9" * 400, "NaN", "1e999"):
        found = parse_chat(event.replace("N", number))
        assert (found.answer, found.tokens_per_second) == ("", None)
    assert parse_chat(event.replace("N", "9")).answer == "a?"


def test_a_servers_error_is_one_short_line() -> None:
    problem = parse_reply('{"error": {"message": "' + "x\\u001b[31m" * 9000 + '"}}\n500').problem
    assert (len(problem) < 600, problem.isprintable(), problem[:9]) == (True, True, "HTTP 500:")


@pytest.mark.parametrize("said", [[], ["0"], ["0", "²"], ["0", "9" * 4301], ["0", "-1"]])
def test_milliseconds_that_a_host_does_not_tell(said: list[str]) -> None:
    with pytest.raises(UnexpectedLineError):
        _seconds(said, 1)


@pytest.mark.parametrize(
    "at", ["2026-13-45 10:00:00", "0001-01-01 00:00:00", "9999-12-31T23:59:59Z", "२०२६-01-01 10:00:00", 3]
)
def test_a_time_that_there_is_not(at: object) -> None:
    assert utc_time(at, "otherwise") == "otherwise"
