"""A server that misbehaves in one way is not proved, one that serves well is. Each wait has a limit for all of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamaherd.resources import ROOT
from roles.serve.proof import planned_task, proof
from roles.serve.transaction import asked
from tests.support.bad_engine import MODES, serving
from tests.support.rigs import cpu_rig, planned
from tests.support.sample import drawn

LIMITS = "FIRST_SECONDS, LATER_SECONDS, STEP_SECONDS, PAGE_SECONDS = "
NAMES = {"chat": (), "embeddings": ("--embeddings",), "rerank": ("--reranking",)}
KEY = "canary-7e1f"
BUDGET = "BUDGET, LONG_SECONDS = 8.0, 0.5\n"
AT_ONCE, SECONDS, LONGEST = 4, 60, 400
"""Servers that are proved at the same time; seconds of each on a busy machine, and characters of its sentence."""


def program(first: float = 2, step: float = 1.5) -> str:
    """Return the proof with shorter limits; a right server needs a tenth of them. It leaves out no step for time."""
    text = (ROOT / "templates/serve/prove.py").read_text()
    assert BUDGET in text
    text = text.replace(BUDGET, "BUDGET, LONG_SECONDS = 60.0, 0.5\n")
    assert f"{LIMITS}30, 120, 30, 5\n" in text
    return text.replace(f"{LIMITS}30, 120, 30, 5\n", f"{LIMITS}{first}, 20, {step}, {step}\n")


def proved(
    folder: Path, mode: str, *, kind: str = "chat", how: str = "judge", slots: int = 2, **declared: object
) -> tuple[int, str, float]:
    """Run the bad engine and prove it; returns the exit code, what is printed, and the seconds."""
    chat = planned(cpu_rig()).instances[0]
    key = folder / "key"
    key.write_text(KEY)
    arguments = ("--alias", chat.model, "--parallel", str(slots), "--api-key-file", str(key), *NAMES[kind])
    with serving(mode, *arguments) as (port, pid):
        server = chat.server.model_copy(
            update={
                "endpoint": chat.endpoint.model_copy(update={"port": port, "streams": slots}),
                "arguments": (*chat.server.arguments, *NAMES[kind]),
            }
        )
        instance = chat.model_copy(update={"server": server})
        question = {**asked(instance), **proof(instance), "key": str(key), **declared}
        (folder / "asked").write_text(json.dumps(question))
        probe = ("--short", "2" if mode else "5", str(folder / "asked"))
        whole = (str(folder / "asked"), str(folder / "record"), str(folder / "out"), how, str(pid))
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-I", "-", *(probe if how == "short" else whole)],
            input=program(),
            capture_output=True,
            text=True,
            timeout=90,
            env={"PROGRESS": "2"},
        )
        seconds = time.monotonic() - began
    assert KEY not in ended.stdout
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout, seconds


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("how", ["judge", "beside", "back", "", "short"])
def test_a_right_server_is_proved(tmp_path: Path, kind: str, how: str) -> None:
    code, why, _ = proved(tmp_path, "", kind=kind, how=how)
    assert (code, why) == (0, "")


@pytest.mark.parametrize("slots", [1, 4])
def test_a_right_server_is_proved_with_slots(tmp_path: Path, slots: int) -> None:
    assert proved(tmp_path, "", slots=slots)[:2] == (0, "")


@pytest.mark.parametrize("kind", MODES)
def test_no_bad_server_is_proved(tmp_path: Path, kind: str) -> None:
    """Each ends within its limits, by one sentence that names what failed."""

    def prove(mode: str) -> tuple[int, str, float]:
        folder = tmp_path / mode
        folder.mkdir()
        return proved(folder, mode, kind=kind)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        modes = drawn(MODES[kind])
        ended = dict(zip(modes, pool.map(prove, modes), strict=True))
    assert [mode for mode, (code, _, _) in ended.items() if code != 1] == []
    assert [why for _, why, _ in ended.values() if not why or "\n" in why or len(why) > LONGEST] == []
    assert [mode for mode, (_, _, seconds) in ended.items() if seconds > SECONDS] == []


@pytest.mark.parametrize(("kind", "arguments"), [*NAMES.items(), ("rerank", ("--embedding", "--pooling", "rank"))])
def test_what_a_server_is_for_is_known_by_its_plan(kind: str, arguments: tuple[str, ...]) -> None:
    chat = planned(cpu_rig()).instances[0]
    server = chat.server.model_copy(update={"arguments": (*chat.server.arguments, *arguments)})
    assert planned_task(chat.model_copy(update={"server": server})) == kind


@pytest.mark.parametrize(
    ("mode", "code"), [("silent", 3), ("drip", 3), ("empty", 1), ("stalled-stream", 3), ("closes", 1)]
)
def test_a_short_proof_tells_silence_from_nonsense(tmp_path: Path, mode: str, code: int) -> None:
    found, why, seconds = proved(tmp_path, mode, how="short")
    assert found == code
    assert why
    assert seconds < 8
