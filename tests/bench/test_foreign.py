"""A server that is measured by its URL alone, over real HTTP; what it says, and how fast, is scripted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import SavedResult, Workload
from llamaherd.measure.bench.series import quick_series
from llamaherd.measure.bench.session import (
    NO_CACHE_COUNTS,
    URL_NOTE,
    UrlTarget,
    folder_name,
    measure_url,
    target_label,
)
from llamaherd.measure.bench.workloads import Ladder, Load
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import KINDS, inspect_url, suite
from llamaherd.measure.results.result import Cell, Host
from llamaherd.measure.results.store import read_result, redact_result, write_result
from tests.bench.played import CHUNKED, END, Part, chunk, delta, last
from tests.bench.site import CHAT, MODELS, Reply, Site, models, page
from tests.bench.test_ladder import Cache
from tests.bench.test_quick import WHOLE


class Quiet:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.abouts: list[str] = []

    def report(self, text: str) -> None:
        self.abouts.append(text)

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        assert 0 <= share <= 1
        assert seconds_left >= 0
        self.abouts.append(about)


def chatting(body: dict[str, Any]) -> list[Part]:
    """As many tokens as are asked for, in eight pieces; a token of the prompt is four letters.

    It writes 2,500 tokens a second: a faster server is sent many more requests in the time of a measurement.
    """
    tokens, prompt = body["max_tokens"], len(body["messages"][0]["content"]) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
    end = 0.002 + tokens / 2500
    parts = [(0.002 + (end - 0.002) * number / 8, chunk(delta("words "))) for number in range(8)]
    return [(0.0, CHUNKED), *parts, (end, chunk(last(usage=usage)) + chunk(END) + b"0\r\n\r\n")]


PLAIN: dict[str, Reply] = {MODELS: models("qwen/Qwen3"), CHAT: chatting}


def measured(
    pages: dict[str, Reply], results: Path, *workloads: Workload, seconds: float = 12
) -> tuple[SavedResult, Site]:
    with Site(pages) as site:
        served = inspect_url(Target(site.url + "/v1"))
        visit = UrlTarget(served, target_label(served, None), results, seconds)
        return measure_url(visit, lambda known: (quick_series(known),), workloads, Quiet()), site


@dataclass(frozen=True)
class Plain:
    """A plain server that was measured: the folder of its results, the newest one, and what it received."""

    folder: Path
    found: SavedResult
    site: Site


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("plain")
    return Plain(folder, *measured(PLAIN, folder))


def test_a_result_says_only_what_is_known(plain: Plain) -> None:
    found, site = plain.found, plain.site
    result = found.result
    assert (result.rig, result.instance, result.label) == ("url", "qwen3-at-127.0.0.1", "Qwen3 at 127.0.0.1")
    assert found.path.parent == plain.folder / "url" / "qwen3-at-127.0.0.1"
    assert read_result(found.path) == result
    assert result.source.notes == (URL_NOTE, NO_CACHE_COUNTS)
    assert result.provenance.model == "qwen/Qwen3"
    assert result.provenance.host == Host(name="127.0.0.1")
    assert not result.provenance.engine.kind
    assert result.method.client == "controller"
    assert {run.clock for cell in result.cells for run in cell.runs} == {"client"}
    assert {cell.condition.kind for cell in result.cells if cell.counted} == {*KINDS, "long"}
    assert {body["model"] for path, _, body in site.asked if path == CHAT} == {"qwen/Qwen3"}
    assert "127.0.0.1:" not in json.dumps(result.provenance.model_dump())


def test_what_is_shared_names_no_host(plain: Plain) -> None:
    found = plain.found.result
    named = found.model_copy(
        update={"provenance": found.provenance.model_copy(update={"host": Host(name="gpu-server.lan")})}
    )
    shared = redact_result(named.model_copy(update={"stack": "Qwen3 at gpu-server.lan, which is gpu-server"}))
    assert shared.stack == "Qwen3 at …, which is …"


def test_the_long_prompt_is_as_long_as_it_says(plain: Plain) -> None:
    """Without a tokenizer, by what the server counts of another text."""
    result = plain.found.result
    cold = next(cell for cell in result.cells if cell.condition.prompt and cell.condition.cache == "cold")
    assert cold.condition.prompt
    for run in cold.counted:
        assert run.prompt_n
        assert abs(run.prompt_n / cold.condition.prompt - 1) < 0.05


def test_it_is_asked_for_what_the_last_one_was(plain: Plain, tmp_path: Path) -> None:
    """For an answer of half the length, if that was so: other lengths cannot be compared."""
    shutil.copytree(plain.folder, tmp_path, dirs_exist_ok=True)
    first = plain.found.result
    shorter = replace(WHOLE, tokens=128, prompt=1024).conditions
    assert first.conditions == WHOLE.conditions
    cells = tuple(Cell(condition=each) for each in shorter)
    write_result(tmp_path, first.model_copy(update={"cells": cells, "began": "2099-01-01T00:00:00Z"}))
    assert measured(PLAIN, tmp_path)[0].result.conditions == shorter


def test_series_beside_it(tmp_path: Path) -> None:
    """A ladder and a load, in the same result."""
    cache = Cache()
    pages = PLAIN | cache.pages() | {"/props": page({"build_info": "b1", "total_slots": 2})}
    ladder, load = Ladder((512, 1024), 32, 1), Load((1, 2), suite().prompts["code"], 0.4, 16)
    result = measured(pages, tmp_path, ladder, load)[0].result
    cells = {cell.condition: cell for cell in result.cells}
    assert {*ladder.conditions, *load.conditions} <= set(cells)
    assert all(cells[condition].counted for condition in (*ladder.conditions, *load.conditions))
    assert result.provenance.server.slots == 2
    assert result.provenance.engine.version == "b1"
    assert "depth: 1 times 32 tokens" in (result.method.rule or "")


def test_what_was_measured_is_kept_where_it_ends(tmp_path: Path) -> None:
    answered = iter(range(12))

    def chat(body: dict[str, Any]) -> Any:
        if next(answered, None) is None:
            return page({"error": {"message": "quota exceeded"}}, "429 Too Many Requests")(body)
        return chatting(body)

    with pytest.raises(UserError, match="429: quota exceeded; the measurements so far are kept in ") as error:
        measured(PLAIN | {CHAT: chat}, tmp_path)
    (path,) = tmp_path.rglob("*.jsonl")
    assert str(path) in error.value.message
    kept = read_result(path)
    assert not kept.ended
    assert 0 < sum(len(cell.runs) for cell in kept.cells) < 12


@pytest.mark.parametrize(
    ("chat", "says"),
    [
        (page("<html>hi</html>", kind="text/html"), "does not stream: its response is text/html"),
        (page({"error": "no"}, "401 Unauthorized"), "the server returns 401: no"),
        (page({"detail": "no such model"}, "404 Not Found"), "404: no such model"),
        (lambda _: [(0.0, CHUNKED + chunk(b"data: nonsense\n\n"))], "sends an event that is no JSON"),
        (lambda _: [(0.0, CHUNKED), (0.0, chunk(END) + b"0\r\n\r\n")], "has no token"),
        (lambda _: [(0.0, b"")], "the connection was cut"),
    ],
)
def test_a_chat_that_is_none_leaves_nothing(chat: Reply, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says) as error:
        measured(PLAIN | {CHAT: chat}, tmp_path)
    assert error.value.help
    assert list(tmp_path.iterdir()) == []


def endless(_: dict[str, Any]) -> Iterator[Part]:
    yield 0.0, CHUNKED
    while True:
        yield 0.0, chunk(b"data: " + b"x" * (1 << 16))


def test_an_answer_without_end_is_a_sentence(tmp_path: Path) -> None:
    def chat(body: dict[str, Any]) -> Any:
        return endless(body)

    with pytest.raises(UserError, match="a line of more than 1 MiB"):
        measured(PLAIN | {CHAT: chat}, tmp_path)


@pytest.mark.parametrize(
    ("label", "folder"),
    [
        ("My vLLM (fp8)!", "my-vllm-fp8"),
        ("../../etc", "etc"),
        ("Ünï", "n"),
        ("…", "server"),
        ("a" * 39 + "-b", "a" * 39),
        ("x" * 99, "x" * 40),
    ],
)
def test_any_label_is_a_folder(label: str, folder: str) -> None:
    assert folder_name(label) == folder
