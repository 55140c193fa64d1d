"""A server that misbehaves in one way is not proved, one that serves well is. Each wait has a limit for all of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from roles.serve.onhost.proof import probe, prove
from roles.serve.onhost.session import Limits
from roles.serve.onhost.speed import How, ProofInput
from roles.serve.transaction import proof_facts, proof_prompt
from tests.support.bad_engine import MODES, serving
from tests.support.rigs import cpu_rig, planned
from tests.support.sample import drawn

LIMITS = Limits(first=2, later=20, step=1.5, page=1.5, steps=60)
"""A right server needs a tenth of them, and no step is left out for time."""
NAMES = {"chat": (), "embeddings": ("--embeddings",), "rerank": ("--reranking",)}
KEY = "canary-7e1f"
AT_ONCE, SECONDS, LONGEST = 4, 60, 400
"""Servers that are proved at the same time; seconds of each on a busy machine, and characters of its sentence."""
SHORT = "short"
HOWS: dict[str, How] = {"judge": "judge", "beside": "beside", "back": "back", "as before": ""}


def proved(mode: str, key_file: str, *, kind: str = "chat", how: str = "judge", slots: int = 2) -> tuple[str, str]:
    """Run the bad engine and prove or probe it. Return the outcome, and why."""
    chat = planned(cpu_rig()).instances[0]
    arguments = ("--alias", chat.model, "--parallel", str(slots), "--api-key-file", key_file, *NAMES[kind])
    with serving(mode, *arguments) as (port, pid):
        server = chat.server.model_copy(
            update={
                "endpoint": chat.endpoint.model_copy(update={"port": port, "streams": slots}),
                "arguments": (*chat.server.arguments, *NAMES[kind]),
            }
        )
        instance = chat.model_copy(update={"server": server})
        question = {**proof_prompt(instance), **proof_facts(instance)}
        if how == SHORT:
            code, why = probe(question, key=KEY, seconds=2 if mode else 5, limits=LIMITS)
            return str(code), why
        given = ProofInput(question, key=KEY, how=HOWS[how], seconds=0, pids=[str(pid)])
        found = prove(given, lambda _: None, limits=LIMITS)
        return found.outcome, found.why


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of the engine's key."""
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text(KEY)
    return str(file)


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("how", [*HOWS, SHORT])
def test_a_right_server_is_proved(key_file: str, kind: str, how: str) -> None:
    assert proved("", key_file, kind=kind, how=how) == ("0" if how == SHORT else "good", "")


@pytest.mark.parametrize("slots", [1, 4])
def test_a_right_server_is_proved_with_slots(key_file: str, slots: int) -> None:
    assert proved("", key_file, slots=slots) == ("good", "")


@pytest.mark.parametrize("kind", MODES)
def test_no_bad_server_is_proved(key_file: str, kind: str) -> None:
    """Each ends within its limits, by one sentence that names what failed."""

    def prove_one(mode: str) -> tuple[str, str, float]:
        began = time.monotonic()
        return *proved(mode, key_file, kind=kind), time.monotonic() - began

    with ThreadPoolExecutor(AT_ONCE) as pool:
        modes = drawn(MODES[kind])
        ended = dict(zip(modes, pool.map(prove_one, modes), strict=True))
    assert [mode for mode, (outcome, _, _) in ended.items() if outcome != "bad"] == []
    assert [why for _, why, _ in ended.values() if not why or "\n" in why or len(why) > LONGEST or KEY in why] == []
    assert [mode for mode, (_, _, seconds) in ended.items() if seconds > SECONDS] == []


@pytest.mark.parametrize(
    ("mode", "code"), [("silent", 3), ("drip", 3), ("empty", 1), ("stalled-stream", 3), ("closes", 1)]
)
def test_a_probe_tells_silence_from_nonsense(key_file: str, mode: str, code: int) -> None:
    began = time.monotonic()
    found, why = proved(mode, key_file, how=SHORT)
    assert found == str(code)
    assert why
    assert time.monotonic() - began < 8
