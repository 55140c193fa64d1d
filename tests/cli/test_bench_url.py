"""`herd bench --url`: servers of others, as a user sees them; each is a script over real HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli.herd import main
from llamaherd.measure.results.lookup import named_result
from llamaherd.measure.results.store import read_result
from tests.bench.site import CHAT, MISSING, MODELS, Reply, Site, models, page
from tests.bench.test_foreign import PLAIN

KEY = "sk-canary-4711"


@pytest.fixture(autouse=True)
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """None: a server by its URL needs no rig."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    monkeypatch.delenv("HERD_URL_KEY", raising=False)
    return tmp_path


def bench(pages: dict[str, Reply], *words: str) -> tuple[Result, Site]:
    with Site(pages) as site:
        ended = CliRunner().invoke(main, ["bench", "--time", "10s", "--url", site.url, *words], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended, site


def test_a_server_of_others_is_measured(inventory: Path) -> None:
    """The second time there is a verdict beside it, and `herd compare` knows it by its name."""
    ended, _ = bench(PLAIN, "--name", "their vLLM")
    assert ended.exit_code == 0, ended.output
    assert "code, 256 out" in ended.stdout
    assert "t/s" in ended.stdout
    assert "machine, GPUs, driver" in ended.stdout
    (path,) = inventory.glob("results/url/their-vllm/*.json")
    assert path.name in ended.stdout.replace("\n", "")
    again, _ = bench(PLAIN, "--name", "their vLLM", "--json")
    assert again.exit_code in (0, 1)
    assert json.loads(again.stdout)["stack"] == "their vLLM"
    compared = CliRunner().invoke(main, ["compare", "url/their-vllm:2", "url/their-vllm"])
    assert compared.exit_code == 0, compared.output


def test_the_key_comes_from_a_file_or_the_environment(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (inventory / "key").write_text(KEY + "\n")
    ended, site = bench({MODELS: page({"error": KEY}, "401 Unauthorized")}, "--key-file", "key")
    assert (ended.exit_code, KEY in ended.output) == (2, False)
    assert site.asked[0][1]["authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("HERD_URL_KEY", "sk-of-the-environment")
    _, site = bench({MODELS: models()})
    assert site.asked[0][1]["authorization"] == "Bearer sk-of-the-environment"
    monkeypatch.setenv("HERD_URL_KEY", " ")
    ended, site = bench({MODELS: models()})
    assert (ended.exit_code, site.asked) == (2, [])
    assert "--key-file" in ended.stderr


@pytest.mark.parametrize(
    ("pages", "words", "says"),
    [
        ({MODELS: page("<html>", kind="text/html")}, [], "sends text/html instead of JSON"),
        ({MODELS: page({"error": "no"}, "401 Unauthorized")}, [], "the server returns 401: no\n  help: check the key"),
        ({MODELS: MISSING}, [], "404"),
        ({MODELS: models("a", "b")}, [], "choose one with `--model`: a, b"),
        ({MODELS: models("a"), CHAT: page("oops")}, [], "does not stream"),
        (PLAIN, ["--depth", "x"], "invalid depth `x`"),
        (PLAIN, ["--concurrency", "0"], "no list of numbers"),
        (PLAIN, ["--key-file", "nowhere"], "nowhere"),
        (PLAIN, ["duo"], "name a rig, or a server"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(
    pages: dict[str, Reply], words: list[str], says: str, inventory: Path
) -> None:
    ended, _ = bench(pages, *words)
    assert ended.exit_code == 2, ended.output
    assert says in ended.stderr
    assert not (inventory / "results").exists()


def test_what_goes_with_a_url_goes_with_no_rig() -> None:
    ended = CliRunner().invoke(main, ["bench", "duo", "--model", "x"])
    assert ended.exit_code == 2
    assert "need --url" in ended.output


def test_depths_are_read_anew_where_nobody_takes_tokens() -> None:
    """With the conditions of a ladder, so that both can be compared."""
    ended, _ = bench(PLAIN, "--depth", "1k,2k", "--json")
    assert ended.exit_code == 0, ended.output
    assert "each depth is read from its beginning" in ended.stderr
    cells = json.loads(ended.stdout)["cells"]
    deep = {cell["condition"]["depth"]: cell["runs"] for cell in cells if cell["condition"].get("depth")}
    assert {depth: len(runs) for depth, runs in deep.items()} == {1024: 2, 2048: 2}
    assert not any(run.get("excluded") for runs in deep.values() for run in runs)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_what_was_measured_is_kept_whatever_ends_it(by: signal.Signals, inventory: Path) -> None:
    herd = str(Path(sys.executable).with_name("herd"))
    with Site(PLAIN) as site:
        command = ["env", "--default-signal=INT", herd, "bench", "--time", "60s", "--url", site.url, "--name", "it"]
        process = subprocess.Popen(command, cwd=inventory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while len(site.asked) < 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(by)
        _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if by == signal.SIGINT else -signal.SIGKILL), said
    assert "Traceback" not in said
    (path,) = inventory.glob("results/url/it/*.jsonl")
    kept = read_result(path)
    assert not kept.ended
    assert 0 < sum(len(cell.runs) for cell in kept.cells) <= 20
    assert named_result("url/it", inventory / "results") == kept
