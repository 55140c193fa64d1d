"""`herd add`: a model of a real hub is declared where it fits, and nothing else of the file changes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.memory_shapes_embedding import bge_m3, bge_reranker, qwen3_embedding
from llamaherd.cli.herd import main
from llamaherd.gguf.shards import read_header
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.pipeline.fleet_files import survey_fleet
from llamaherd.pipeline.load import read_lock
from tests.support import gguf_files
from tests.support.envelope import the_rig
from tests.support.hub_files import Content, Hollow
from tests.support.hub_server import Hub

REPO = "unsloth/Llama-3.1-8B-GGUF"
MOE = "unsloth/Qwen3.6-35B-A3B-GGUF"
RIG = """\
# the big one
rig: duo
connect: {host: duo.lan, user: tom}
host: {os: ubuntu-24.04, cpu: {cores: 12}, ram: 96GB}

gpus:
  cuda: "13.0"
  cards:
    small: {model: RTX 3070, uuid: GPU-3070}   # 8 GB
    large: {model: RTX 3090, uuid: GPU-3090}

engines:
  main: {kind: llama.cpp, source: {git: "https://git.lan/llama.cpp", commit: %s}}

models: {}   # none yet

instances: {}
""" % ("cd" * 20)


def hollow(model: gguf_files.Model, folder: Path, name: str) -> Hollow:
    file = gguf_files.write(model, folder / name)[0]
    with file.open("rb") as stream:
        return Hollow(stream.read(read_header(file).data_offset), file.stat().st_size)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Content]]:
    folder = tmp_path_factory.mktemp("models")
    dense: dict[str, Content] = {
        f"Llama-3.1-8B-{name}.gguf": hollow(gguf_files.llama(dense=kind), folder, f"{name}.gguf")
        for name, kind in {"Q4_K_M": "Q4_K", "Q8_0": "Q8_0", "F16": "F16", "Q2_K": "Q2_K"}.items()
    }
    moe: dict[str, Content] = {
        "Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf": hollow(gguf_files.qwen(mtp=False), folder, "moe.gguf")
    }
    tasks: dict[str, dict[str, Content]] = {
        f"task/{name}-GGUF": {f"{name}-Q8_0.gguf": hollow(model, folder, f"{name}.gguf")}
        for name, model in {"bge": bge_m3(), "ranker": bge_reranker(), "qwen": qwen3_embedding()}.items()
    }
    return {REPO: {**dense, "mmproj-F16.gguf": Hollow(b"GGUF", 10**9), "README.md": b"# Llama"}, MOE: moe, **tasks}


@pytest.fixture
def fleet(tmp_path: Path, files: dict[str, dict[str, Content]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A rig without a server, and a hub with its models."""
    (tmp_path / "duo.yaml").write_text(RIG)
    with Hub(files) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
        yield tmp_path


def add(fleet: Path, *words: str) -> Result:
    ended = CliRunner().invoke(main, ["add", *words, "-i", str(fleet)], prog_name="herd")
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def instances(fleet: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = read_yaml(fleet / "duo.yaml").data["instances"]
    return found


@pytest.mark.parametrize("word", [f"hf.co/{REPO}:q4_k_m", f"{REPO}:Q4_K_M", f"https://huggingface.co/{REPO}", REPO])
def test_a_model_goes_to_the_emptiest_gpu_with_comments_kept(fleet: Path, word: str) -> None:
    ended = add(fleet, word, "--yes")
    assert ended.exit_code == 0, ended.output
    text = (fleet / "duo.yaml").read_text()
    before = RIG.replace("models: {}   # none yet", "models:   # none yet").replace("instances: {}", "instances:")
    assert [line for line in before.splitlines() if line not in text.splitlines()] == []
    assert "  llama-3.1-8b: {hf: unsloth/Llama-3.1-8B-GGUF, quant: Q4_K_M}" in text.splitlines()
    assert instances(fleet) == {
        "llama-3.1-8b": {
            "engine": "main",
            "model": "llama-3.1-8b",
            "on": ["large"],
            "context": 131072,
            "port": 8080,
        }
    }
    assert f"next: herd -i {fleet} up duo" in ended.output
    assert "add `mmproj: mmproj-F16.gguf` to the model" in ended.output
    lock = read_lock(fleet)
    assert [(each.repo, each.header is not None) for each in lock.models] == [(REPO, True)]
    assert survey_fleet(fleet, lock).ok


def test_the_next_ones_go_beside_it(fleet: Path) -> None:
    """Each gets its own name and port; what is declared leaves less room; a model is declared once."""
    assert add(fleet, REPO, "--yes").exit_code == 0
    second = add(fleet, REPO, "--name", "helper", "--context", "8192", "--yes")
    assert second.exit_code == 0, second.output
    third = add(fleet, REPO, "--context", "8192", "--on", "cpu", "--port", "9000", "--yes")
    assert third.exit_code == 0, third.output
    found = instances(fleet)
    assert [(name, each.get("on"), each["context"], each["port"]) for name, each in found.items()] == [
        ("llama-3.1-8b", ["large"], 131072, 8080),
        ("helper", ["small"], 8192, 8081),
        ("llama-3.1-8b-2", None, 8192, 9000),
    ]
    assert len(read_yaml(fleet / "duo.yaml").data["models"]) == 1
    assert survey_fleet(fleet, read_lock(fleet)).ok


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("bge", {"serve": "embeddings", "batch": 2048, "ubatch": 2048, "context": 2048}),
        ("ranker", {"serve": "rerank", "batch": 2048, "ubatch": 2048, "context": 2048}),
        ("qwen", {"serve": "embeddings", "context": 32768}),
    ],
)
def test_a_model_for_embeddings_or_rerank_is_served_as_that(fleet: Path, name: str, keys: dict[str, object]) -> None:
    ended = add(fleet, f"task/{name}-GGUF", "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert {key: value for key, value in each.items() if key not in ("engine", "model", "on", "port")} == keys
    survey = survey_fleet(fleet, read_lock(fleet))
    assert {finding.code for finding in survey.findings} == {"LH075"}, "the other GPU has no server"


def test_experts_go_to_the_ram_where_no_gpu_has_room(fleet: Path) -> None:
    ended = add(fleet, MOE, "--on", "small", "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert (each["on"], each["experts_on_cpu"]) == (["small"], 29)
    survey = survey_fleet(fleet, read_lock(fleet))
    (sized,) = survey.facts["duo"].sized.values()
    assert sized.fit.fits
    fewer = sized.instance.model_copy(update={"experts_on_cpu": 28, "context": 32768})
    one_less = survey.facts["duo"].sized_as("qwen3.6-35b-a3b", fewer)
    assert one_less
    assert not one_less.fit.fits, "no more layers are moved than must be"


def test_what_does_not_fit_is_refused_with_what_would(fleet: Path) -> None:
    ended = add(fleet, f"{REPO}:F16", "--on", "small", "--yes")
    assert ended.exit_code == 1
    assert "does not fit on duo" in ended.output
    (quant,) = re.findall(r"it would fit on duo with another quant: (\S+)", ended.output)
    assert "it would fit on duo with other GPUs: leave out --on" in ended.output
    assert "it would fit on duo with the CPU, which is slower: --on cpu" in ended.output
    again = add(fleet, quant, "--on", "small", "--yes")
    assert again.exit_code == 0, "the advice holds"


def test_a_context_that_does_not_fit(fleet: Path) -> None:
    ended = add(fleet, f"{REPO}:F16", "--on", "large", "--context", "262144", "--yes", "--json")
    assert ended.exit_code == 1
    row = the_rig(ended.stdout)
    (smaller,) = [way for way in row["would_fit"] if way.startswith("a smaller context")]
    context = smaller.rpartition(" ")[2]
    assert add(fleet, f"{REPO}:F16", "--on", "large", "--context", context, "--yes").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([f"{REPO}:Q5_K_M", "--yes"], 1, "name one of its quants: `F16`, `Q8_0`, `Q4_K_M`, `Q2_K`"),
        (["unsloth/None-GGUF", "--yes"], 1, "has no public repository"),
        (["what is this", "--yes"], 1, "write OWNER/NAME:QUANT"),
        (["missing.gguf", "--yes"], 1, "there is no file `missing.gguf`"),
        ([REPO, "--on", "lage", "--yes"], 1, "did you mean `large`?"),
        ([REPO, "--rig", "dou", "--yes"], 2, "did you mean `duo`?"),
        ([REPO, "--name", "Big One", "--yes"], 1, "is no name of an instance"),
        ([REPO], 2, "add --yes"),
        ([REPO, "--json"], 2, "--json needs --yes"),
    ],
    ids=str,
)
def test_what_is_refused_writes_nothing(fleet: Path, words: list[str], code: int, message: str) -> None:
    ended = add(fleet, *words)
    assert (ended.exit_code, message in ended.output) == (code, True), ended.output
    assert (fleet / "duo.yaml").read_text() == RIG
    assert not (fleet / "herd.lock").exists()


def test_a_dry_run_shows_the_lines_and_writes_nothing(fleet: Path) -> None:
    ended = add(fleet, REPO, "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert "  +  llama-3.1-8b:" in ended.output
    assert "port 8080" in ended.output
    assert (fleet / "duo.yaml").read_text() == RIG
    row = json.loads(add(fleet, REPO, "--dry-run", "--json").stdout)["rigs"][0]
    assert (row["on"], row["written"], row["memory"][0]["where"]) == (["large"], False, "large")


def test_defaults_of_instances_hold_for_it(fleet: Path) -> None:
    """The cache of q8_0 and two slots are of `defaults.yaml`; the file of the rig does not repeat them."""
    (fleet / "defaults.yaml").write_text("instance_defaults: {kv: q8_0, parallel: 2, on: [large]}\n")
    ended = add(fleet, REPO, "--on", "small", "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert each["on"] == ["small"]
    assert "kv" not in each
    alone = add(fleet, REPO, "--on", "cpu", "--context", "4096", "--yes")
    assert alone.exit_code == 0, alone.output
    assert [*instances(fleet).values()][1]["on"] == []


def test_a_file_that_changed_does_not_move_the_lock_of_its_servers(
    fleet: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = gguf_files.write(gguf_files.gemma3(), tmp_path_factory.mktemp("own") / "gemma.gguf")[0]
    assert add(fleet, str(file), "--yes").exit_code == 0
    assert add(fleet, str(file), "--name", "second", "--yes").exit_code == 0
    before = (fleet / "duo.yaml").read_bytes(), (fleet / "herd.lock").read_bytes()
    with file.open("ab") as stream:
        stream.write(b"more")
    ended = add(fleet, str(file), "--name", "third", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "has another sha256 than when it was locked" in ended.output
    assert ((fleet / "duo.yaml").read_bytes(), (fleet / "herd.lock").read_bytes()) == before


def test_a_file_of_this_machine(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = gguf_files.write(gguf_files.gemma3(), tmp_path_factory.mktemp("own") / "Gemma 3 Q8_0.gguf")[0]
    ended = add(fleet, str(file), "--yes")
    assert ended.exit_code == 0, ended.output
    (model,) = read_yaml(fleet / "duo.yaml").data["models"].values()
    assert model == {"file": str(file)}
    assert instances(fleet).keys() == {"gemma-3-q8_0"}
    (locked,) = read_lock(fleet).files
    assert locked.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    survey = survey_fleet(fleet, read_lock(fleet))
    assert survey.ok
    assert survey.facts["duo"].sized["gemma-3-q8_0"].fit.fits


def test_a_rig_with_a_mistake_is_left_alone(fleet: Path) -> None:
    broken = RIG.replace("cores: 12", "cores: many")
    (fleet / "duo.yaml").write_text(broken)
    ended = add(fleet, REPO, "--yes")
    assert (ended.exit_code, "LH012" in ended.output) == (2, True), ended.output
    assert (fleet / "duo.yaml").read_text() == broken


def test_the_best_rig_is_chosen(fleet: Path) -> None:
    other = RIG.replace("rig: duo", "rig: six").replace("duo.lan", "six.lan").replace("RTX 3090", "RTX 5090")
    (fleet / "six.yaml").write_text(other)
    ended = add(fleet, f"{REPO}:F16", "--yes")
    assert ended.exit_code == 0, ended.output
    assert "six/llama-3.1-8b" in ended.output
    assert (fleet / "duo.yaml").read_text() == RIG
