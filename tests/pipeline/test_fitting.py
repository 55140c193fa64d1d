"""`herd fit` and `herd check` as one types them: answers, exit codes, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llamaherd import lock
from llamaherd.cli.herd import main
from llamaherd.gguf.shards import join_headers, read_header, read_headers
from llamaherd.measure.tune.tuning import tune_target
from roles import ROLES
from tests.support import gguf_files
from tests.support.envelope import envelope, the_rig
from tests.support.examples import EXAMPLES, locked
from tests.support.hub_files import Hollow
from tests.support.hub_server import Hub
from tests.tune.kept import keep, like

REPO = "unsloth/Qwen3.6-35B-A3B-MTP-GGUF"

SHOWN = """\
one (ubuntu-24.04)
  chat       http://127.0.0.1:8080 on the host alone
             35b on main, context 262,144, 1 stream, no API key
             memory: card 19,520 of 24,463 MiB, RAM 1,393 of 91,553 MiB
  driver     580, open modules: the newest of branch 580, then kept
  power      card: 210 to 2400 MHz (0)

"""


def herd(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 20 GB, of which the header is there."""
    shape = gguf_files.qwen(tokens=20_000)
    return gguf_files.write(shape, tmp_path_factory.mktemp("models") / "qwen.gguf")[0]


@pytest.fixture
def hub(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with file.open("rb") as stream:
        head = stream.read(read_header(file).data_offset)
    files = {f"Qwen3.6-35B-A3B-{quant}.gguf": Hollow(head, file.stat().st_size) for quant in ("UD-Q4_K_XL", "Q8_0")}
    with Hub({REPO: files}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
        yield running


def test_a_file_that_fits(file: Path) -> None:
    done = herd("fit", str(file), "--vram", "24G", "--context", "65536", "--kv", "q8_0")
    assert done.exit_code == 0, done.output
    assert "all on the GPUs, 65536 tokens, cache in q8_0" in done.output
    assert "It fits, with up to" in done.output


def test_experts_go_to_the_ram_where_the_card_is_small(file: Path) -> None:
    done = herd("fit", str(file), "--vram", "12G", "--ram", "64G", "--json")
    assert done.exit_code == 0, done.output
    told = envelope(done.output)["data"]
    assert (told["fits"], [row["where"] for row in told["devices"]]) == (True, ["GPU 0", "RAM"])
    assert "experts" in told["how"]
    assert all(row["total"] <= row["of"] for row in told["devices"])


def test_what_does_not_fit_ends_with_1_and_says_what_would(file: Path) -> None:
    words = ("fit", str(file), "--vram", "4G", "--ram", "64G", "--context", "262144", "--extra-args", "-ngl 99")
    done = herd(*words)
    assert done.exit_code == 1, done.output
    assert "It does not fit." in done.output
    changes = envelope(herd(*words, "--json").output)["data"]["changes"]
    assert changes
    said = [line for line in done.output.splitlines() if line.startswith("it would fit with: ")]
    assert said == [f"it would fit with: {change}" for change in changes]


def test_a_model_on_the_hub_costs_its_header(hub: Hub) -> None:
    done = herd("fit", f"{REPO}:UD-Q4_K_XL", "--vram", "24G")
    assert done.exit_code == 0, done.output
    fetched = [request for request in hub.requests if request.range]
    assert 1 <= len(fetched) <= 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.gguf"], "there is no file nothing.gguf"),
        (["nonsense"], "is no model"),
        (["MODEL", "--vram", "lots"], "`lots` is no size"),
        (["MODEL", "--vram", "24G", "--kv", "q9"], "q9"),
    ],
)
def test_what_cannot_be_told_ends_with_2(words: list[str], said: str, file: Path) -> None:
    done = herd("fit", *(str(file) if word == "MODEL" else word for word in words))
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_repository_that_the_hub_does_not_have(hub: Hub) -> None:
    done = herd("fit", "nobody/nothing:Q4_K_M", "--vram", "24G")
    assert done.exit_code == 2
    assert f"{hub.url} has no public repository nobody/nothing" in done.output


def test_a_model_of_the_inventory_is_known_by_its_lock(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes((EXAMPLES / "one.yaml").read_bytes())
    assert "is not in the lock" in herd("-i", str(tmp_path), "fit", "35b", "--vram", "24G").output
    lock.write_lock(tmp_path / "herd.lock", locked())
    done = herd("-i", str(tmp_path), "fit", "35b", "--vram", "24G", "--context", "262144", "--kv", "q4_0", "--mtp", "3")
    assert done.exit_code == 0, done.output
    assert "It fits" in done.output


@pytest.mark.parametrize("where", ["here", "on the hub"])
def test_what_was_found_best_for_a_model_is_said_wherever_its_header_is_from(
    where: str, file: Path, hub: Hub, tmp_path: Path
) -> None:
    (tmp_path / "one.yaml").write_bytes((EXAMPLES / "one.yaml").read_bytes())
    keep(tmp_path / "results", like(("RTX 3090", 24), header=join_headers(read_headers(file)).digest))
    model = str(file) if where == "here" else f"{REPO}:UD-Q4_K_XL"
    done = herd("-i", str(tmp_path), "fit", model, "--vram", "24G")
    assert done.exit_code == 0, done.output
    assert "measured: " in done.output
    assert "duo/worker (RTX 3090, 12 cores): +" in done.output
    assert "results/duo/worker/tune-20261124T150000Z.jsonl; with\n" in done.output
    assert "    threads: " in done.output
    told = envelope(herd("-i", str(tmp_path), "fit", model, "--vram", "24G", "--json").output)["data"]
    assert [(each["rig"], each["found"]) for each in told["measured"]] == [("duo", "2026-11-24")]
    other = herd("-i", str(tmp_path), "fit", model, "--vram", "12G,12G")
    assert "measured" not in other.output
    assert hub.url


def test_what_was_found_best_for_an_instance_is_said_for_its_model(tmp_path: Path) -> None:
    (tmp_path / "budget.yaml").write_bytes((EXAMPLES / "budget.yaml").read_bytes())
    lock.write_lock(tmp_path / "herd.lock", locked())
    of = tune_target(tmp_path / "budget.yaml", ROLES, "budget", "chat")
    keep(tmp_path / "results", of.likeness, "budget/chat")
    words = ("-i", str(tmp_path), "fit", "35b", "--vram", "8G", "--ram", "16G")
    done = herd(*words, "--context", "4096")
    assert "budget/chat (RTX 3070, 8 cores): +" in done.output
    assert "unsloth/Qwen3.5-35B-A3B-GGUF UD-IQ2_XXS, 4096 tokens; found by `herd tune` on" in done.output
    assert "measured" not in herd(*words, "--context", "8192").output


def findings(done: Result) -> list[dict[str, Any]]:
    told = envelope(done.stdout)
    assert set(told["data"]) == {"total", "fixable", "fixed"}
    return list(told["findings"])


def test_checking_examples_and_recipes_and_nothing(tmp_path: Path) -> None:
    clean = herd("check", str(EXAMPLES), "--json")
    # ik_llama.cpp has nothing that keeps web pages from a server without a key.
    assert (clean.exit_code, [each["code"] for each in findings(clean)]) == (0, ["LH078"])
    script = tmp_path / "start.sh"
    script.write_text("llama-server -m m.gguf -fa --no-mmap -c 4096\n")
    wrong = herd("check", str(EXAMPLES), str(script), "--json")
    assert wrong.exit_code == 1
    assert {each["code"] for each in findings(wrong)} == {"LH078", "LH101", "LH103"}
    gone = herd("check", str(tmp_path / "gone"), "--json")
    assert (gone.exit_code, [each["code"] for each in findings(gone)]) == (2, ["LH005"])


def test_a_warning_is_no_error(tmp_path: Path) -> None:
    text = (EXAMPLES / "one.yaml").read_text(encoding="utf-8").replace("    thinking: false\n", "    threads: 8\n")
    (tmp_path / "rig.yaml").write_text(
        text.replace("engines:\n", "engines:\n  spare: {kind: llama.cpp, ref: b11434}\n")
    )
    done = herd("check", str(tmp_path), "--json")
    assert (done.exit_code, [each["severity"] for each in findings(done)]) == (0, ["warning"])


def test_a_plan_for_machines_has_the_memory(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes((EXAMPLES / "one.yaml").read_bytes())
    lock.write_lock(tmp_path / "herd.lock", locked())
    done = herd("-i", str(tmp_path), "show", "one", "--json")
    assert done.exit_code == 0, done.output
    (instance,) = the_rig(done.output)["instances"]
    assert instance["memory"]["source"] == "arithmetic"
    assert [each["where"] for each in instance["memory"]["holds"]] == ["card", "RAM"]


def test_what_is_shown_begins_with_addresses_and_memory(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes((EXAMPLES / "one.yaml").read_bytes())
    lock.write_lock(tmp_path / "herd.lock", locked())
    assert herd("-i", str(tmp_path), "show").stdout == SHOWN
    whole = herd("-i", str(tmp_path), "show", "-v").stdout
    assert whole.startswith(SHOWN)
    for detail in ("--cache-type-k q4_0", "sha256", "/etc/llamaherd/compose/chat"):
        assert (detail in whole, detail in SHOWN) == (True, False)


def test_a_plan_says_what_is_doubtful_and_goes_on(tmp_path: Path) -> None:
    text = (EXAMPLES / "one.yaml").read_text(encoding="utf-8")
    (tmp_path / "one.yaml").write_text(
        text.replace("context: 262144", "context: 262144\n    threads: 1\n    warmup: false")
    )
    (tmp_path / "spare.yaml").write_text(
        text.replace("rig: one", "rig: spare")
        .replace("olares.lan", "spare.lan")
        .replace("  main:\n", "  other: {kind: llama.cpp, ref: b11434}\n  main:\n")
    )
    lock.write_lock(tmp_path / "herd.lock", locked())
    assert "warning" not in herd("-i", str(tmp_path), "show", "one").stderr
    done = herd("-i", str(tmp_path), "show", "spare", "-v")
    assert (done.exit_code, done.stderr, "rig spare" in done.stdout) == (0, "1 warning: run `herd check`\n", True)


def test_arguments_are_counted_as_those_of_an_inventory(file: Path) -> None:
    asked = ("fit", str(file), "--vram", "24G", "--ram", "64G", "--context", "65536", "--json")
    usual = envelope(herd(*asked).output)["data"]
    cached = envelope(herd(*asked, "--extra-args", "-ctk q8_0 -ctv q8_0").output)["data"]
    by_key = envelope(herd(*asked, "--kv", "q8_0").output)["data"]
    assert cached["devices"] == by_key["devices"] != usual["devices"]
    moved = envelope(herd(*asked, "--extra-args", '-ot ".ffn_.*_exps.=CPU" -ub 2048').output)["data"]
    assert moved["how"] == "as it is placed"
    assert moved["devices"][0]["weights"] < usual["devices"][0]["weights"] / 2
    assert moved["devices"][1]["weights"] > usual["devices"][1]["weights"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--ctx-sizee 4096", "did you mean `--ctx-size`?"),
        ("-ot 'exps'", "-ot"),
        ("-np 4096", "256"),
        ("-ot 'exps=CPU", "a quote is opened and not closed"),
        ("-ngl auto", "decides itself"),
    ],
)
def test_arguments_that_no_engine_takes_are_no_question(file: Path, arguments: str, said: str) -> None:
    done = herd("fit", str(file), "--vram", "24G", "--extra-args", arguments)
    assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert said in done.output


def test_the_engine_is_chosen(file: Path) -> None:
    asked = ("fit", str(file), "--vram", "24G,24G", "--json")
    of_ik = envelope(herd(*asked, "--engine", "ik_llama.cpp", "--extra-args", "-amb 512").output)["data"]
    assert of_ik["devices"] != envelope(herd(*asked).output)["data"]["devices"]
    refused = herd(*asked, "--extra-args", "-amb 512")
    assert (refused.exit_code, "ik_llama.cpp" in refused.output) == (2, True)
