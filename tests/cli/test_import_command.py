"""`herd import`: servers of a file become instances of a rig, with what differs above each, and all else unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamaherd.cli import fleet_folder
from llamaherd.cli.herd import main
from llamaherd.inventory.schema.software import UPSTREAM
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.lock import Lock, write_lock
from llamaherd.lock.file import LockedRef
from llamaherd.pipeline.fleet_files import survey_fleet
from llamaherd.pipeline.load import read_lock
from tests.cli.test_add_command import MOE, REPO, RIG, hollow
from tests.support import gguf_files
from tests.support.envelope import the_rig
from tests.support.found_hosts import found_host
from tests.support.hub_files import Content, Hollow
from tests.support.hub_server import Hub

SERVER = "llama-server -m /srv/llama.gguf -c 8192 -ngl 99 -fa on -ctk q8_0 -ctv q8_0 -np 2 -t 6 --port 8123"
MODEL = ("--model", f"{REPO}:Q4_K_M")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Content]]:
    folder = tmp_path_factory.mktemp("models")
    dense: dict[str, Content] = {
        f"Llama-3.1-8B-{name}.gguf": hollow(gguf_files.llama(dense=kind), folder, f"{name}.gguf")
        for name, kind in {"Q4_K_M": "Q4_K", "F16": "F16"}.items()
    }
    moe: dict[str, Content] = {
        "Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf": hollow(gguf_files.qwen(mtp=False), folder, "moe.gguf")
    }
    return {REPO: {**dense, "mmproj-F16.gguf": Hollow(b"GGUF", 10**9)}, MOE: moe}


@pytest.fixture
def fleet(tmp_path: Path, files: dict[str, dict[str, Content]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A rig without a server, and a hub with its models."""
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "duo.yaml").write_text(RIG)
    with Hub(files) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
        yield tmp_path / "fleet"


def imported(fleet: Path, name: str, text: str, *words: str, given: str | None = None) -> Result:
    file = fleet.parent / name
    if given is None:
        file.write_text(text, encoding="utf-8")
    arguments = ["import", str(file) if given is None else "-", *words, "-i", str(fleet)]
    ended = CliRunner().invoke(main, arguments, prog_name="herd", input=given)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def instances(fleet: Path, rig: str = "duo") -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = read_yaml(fleet / f"{rig}.yaml").data["instances"]
    return found


def comments(fleet: Path, rig: str = "duo") -> list[str]:
    lines = (fleet / f"{rig}.yaml").read_text().splitlines()
    return [line.strip() for line in lines if line.strip().startswith(("# from", "# differs", "# not compared"))]


def test_a_script_becomes_an_instance_with_what_differs_above_it(fleet: Path) -> None:
    ended = imported(
        fleet, "start.sh", f"#!/bin/sh\nCUDA_VISIBLE_DEVICES=GPU-3090 {SERVER} --fit on\n", *MODEL, "--yes"
    )
    assert ended.exit_code == 0, ended.output
    assert instances(fleet) == {
        "llama": {
            "engine": "main",
            "model": "llama",
            "on": ["large"],
            "gpu_layers": "all",
            "context": 8192,
            "kv": "q8_0",
            "parallel": 2,
            "threads": 6,
            "flash_attention": "on",
            "port": 8123,
        }
    }
    assert comments(fleet)[0] == "# from start.sh:2"
    assert "# differs: `--fit on` is not used: the plan places the model" in comments(fleet)
    text = (fleet / "duo.yaml").read_text()
    before = RIG.replace("models: {}   # none yet", "models:   # none yet").replace("instances: {}", "instances:")
    assert [line for line in before.splitlines() if line not in text.splitlines()] == []
    assert read_yaml(fleet / "duo.yaml").data["models"] == {"llama": {"hf": REPO, "quant": "Q4_K_M"}}
    assert f"next: herd -i {fleet} up duo" in ended.output
    survey = survey_fleet(fleet, read_lock(fleet))
    assert survey.ok
    assert survey.facts["duo"].sized["llama"].fit.fits


def test_what_the_engine_chooses_is_written_down(fleet: Path) -> None:
    """The repository is in the file, so no option is needed."""
    ended = imported(fleet, "start.sh", f"llama-server -hf {REPO}:Q4_K_M --port 8080\n", "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert (each["on"], each["context"]) == (["small", "large"], 131072)
    text = "\n".join(comments(fleet))
    for flag in ("--ctx-size 131072", "--threads", "--gpu-layers all", "--parallel 1", "add `mmproj: mmproj-F16.gguf`"):
        assert flag in text


def test_a_taken_port_is_replaced_and_that_is_said(fleet: Path) -> None:
    assert imported(fleet, "a.sh", f"CUDA_VISIBLE_DEVICES=0 {SERVER} \n", *MODEL, "--yes").exit_code == 0
    ended = imported(fleet, "b.sh", f"CUDA_VISIBLE_DEVICES=1 {SERVER} \n", *MODEL, "--yes")
    assert ended.exit_code == 0, ended.output
    assert [each["port"] for each in instances(fleet).values()] == [8123, 8124]
    assert [each["on"] for each in instances(fleet).values()] == [["small"], ["large"]]
    assert [each["model"] for each in instances(fleet).values()] == ["llama", "llama"]
    assert "# differs: its port is 8124: the file has 8123" in comments(fleet)


SWAP = """\
models:
  big:
    cmd: llama-server --port ${PORT} -m /srv/a.gguf -c 8192 -ngl 99
    ttl: 300
  Small One:
    cmd: llama-server --port ${PORT} -m /srv/b.gguf -c 4096 -ngl 99
    aliases: [tiny]
"""


def test_models_of_llama_swap_become_a_group(fleet: Path) -> None:
    sources = ("--model", f"big={REPO}:Q4_K_M", "--model", f"small-one={MOE}")
    ended = imported(fleet, "config.yaml", SWAP, *sources, "--yes")
    assert ended.exit_code == 0, ended.output
    found = instances(fleet)
    assert [*found] == ["big", "small-one"]
    assert {(each["group"], each["port"]) for each in found.values()} == {("models", 8080)}
    assert found["big"]["idle"] == {"unload": "300s"}
    assert any("`aliases:` is not carried over" in line for line in comments(fleet))
    assert not any("--sleep-idle-seconds" in line for line in comments(fleet)), "`ttl` is carried over"


def test_no_unit_replaces_that_of_llama_swap(fleet: Path) -> None:
    """The unit of a group `swap` would be `llama-swap.service`."""
    named = f"{SWAP}groups: {{swap: {{members: [big, Small One]}}}}\n"
    ended = imported(
        fleet, "config.yaml", named, "--model", f"big={REPO}:Q4_K_M", "--model", f"small-one={MOE}", "--yes"
    )
    assert ended.exit_code == 0, ended.output
    assert {each["group"] for each in instances(fleet).values()} == {"swap-2"}


def test_models_of_llama_swap_keep_the_names_that_clients_request(fleet: Path) -> None:
    assert imported(fleet, "start.sh", SERVER, *MODEL, "--yes").exit_code == 0
    sources = ("--model", f"big={REPO}:Q4_K_M", "--model", f"small-one={MOE}")
    ended = imported(fleet, "config.yaml", SWAP, *sources, "--yes")
    assert ended.exit_code == 0, ended.output
    assert {name: each["model"] for name, each in instances(fleet).items()} == {
        "llama": "llama",
        "big": "big",
        "small-one": "small-one",
    }


PRESET = """\
[*]
ngl = 99
[one]
model = /srv/a.gguf
ctx-size = 8192
[two]
model = /srv/b.gguf
ctx-size = 4096
jinja = false
"""


def test_models_of_a_router_become_a_group(fleet: Path) -> None:
    sources = ("--model", f"one={REPO}:Q4_K_M", "--model", f"two={MOE}")
    ended = imported(fleet, "models.ini", PRESET, *sources, "--yes")
    assert ended.exit_code == 0, ended.output
    found = instances(fleet)
    assert {each["group"] for each in found.values()} == {"router"}
    assert found["two"]["extra_args"] == ["--no-jinja"]


def test_messages_about_standard_input_name_it(fleet: Path) -> None:
    unread = imported(fleet, "-", "", "--yes", given="hello\n")
    assert unread.exit_code == 2
    assert unread.output.startswith("standard input: error LH001: ")
    empty = imported(fleet, "-", "", "--yes", given="#!/bin/sh\necho hello\n")
    assert empty.exit_code == 1
    assert empty.output.startswith("error: standard input starts no server")
    unknown = imported(fleet, "-", "", "--yes", given="#!/bin/sh\nllama-server -m /elsewhere/model.gguf\n")
    assert unknown.exit_code == 1
    assert "error: standard input names `/elsewhere/model.gguf`" in unknown.output


def test_ollama_and_lm_studio_become_models(fleet: Path) -> None:
    listed = f"NAME   ID   SIZE   MODIFIED\nhf.co/{REPO}:Q4_K_M   abc   4.9 GB   2 weeks ago\nqwen3:8b   d  5 GB  now\n"
    ended = imported(fleet, "-", "", "--yes", given=listed)
    assert ended.exit_code == 1
    assert "add `--model qwen3-8b=OWNER/NAME:QUANT`" in ended.output
    ended = imported(fleet, "-", "", "--model", f"qwen3-8b={MOE}", "--yes", given=listed)
    assert ended.exit_code == 0, ended.output
    studio = fleet.parent / "models" / "publisher" / "gemma-GGUF"
    studio.mkdir(parents=True)
    file = gguf_files.write(gguf_files.gemma3(), studio / "gemma-Q8_0.gguf")[0]
    ended = CliRunner().invoke(main, ["import", str(studio.parent.parent), "-i", str(fleet), "--yes"])
    assert ended.exit_code == 0, ended.output
    models = read_yaml(fleet / "duo.yaml").data["models"]
    assert models["gemma-q8_0"] == {"file": str(file)}
    assert [each.get("hf") for each in models.values()] == [REPO, MOE, None]
    assert not read_yaml(fleet / "duo.yaml").data["instances"]


def test_a_modelfile_becomes_an_instance(fleet: Path) -> None:
    text = f"# FROM hf.co/{REPO}:Q4_K_M\n\nFROM /blobs/sha256-ab\nPARAMETER num_ctx 8192\n"
    text += 'PARAMETER temperature 0.6\nPARAMETER stop "<|end|>"\nTEMPLATE """{{ .Prompt }}\nFROM me"""\n'
    ended = imported(fleet, "Modelfile", text, "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert (each["context"], each["sampling"]) == (8192, {"temperature": 0.6})
    assert "# differs: `PARAMETER stop` is not carried over" in comments(fleet)


def test_a_new_rig_has_the_hardware_of_its_host(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_folder, "inspect_hardware", lambda _connect: found_host("duo"))
    ended = imported(fleet, "start.sh", f"{SERVER}\n", *MODEL, "--from", "tom@new.lan", "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert not (fleet / "new.yaml").exists()
    ended = imported(fleet, "start.sh", f"{SERVER}\n", *MODEL, "--from", "tom@new.lan", "--dry-run", "--json")
    row = the_rig(ended.stdout)
    assert (row["rig"], row["written"], row["instances"][0]["port"]) == ("new", False, 8123)
    assert len(row["instances"][0]["on"]) == 2
    ended = imported(fleet, "start.sh", f"{SERVER}\n", "--from", "tom@duo.lan", "--rig", "duo", "--yes")
    assert ended.exit_code == 1
    assert "there is a rig in" in ended.output


def test_a_new_rig_is_written_with_the_files_of_its_folder(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_folder, "inspect_hardware", lambda _connect: found_host("duo"))
    ref = LockedRef(git=UPSTREAM["llama.cpp"], ref="b11434", commit="ab" * 20)
    write_lock(fleet / "herd.lock", Lock(engines=(ref,)))
    ended = imported(fleet, "start.sh", f"{SERVER}\n", *MODEL, "--from", "tom@new.lan", "--yes")
    assert ended.exit_code == 0, ended.output
    assert instances(fleet, "new")["llama"]["port"] == 8123
    assert comments(fleet, "new")[0] == "# from start.sh:1"
    assert (fleet / "duo.yaml").read_text() == RIG
    assert (fleet / "deploy.py").exists()
    survey = survey_fleet(fleet, read_lock(fleet))
    assert survey.ok
    assert [*survey.fleet.rigs] == ["duo", "new"]


COMPOSE = """\
services:
  llm:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    gpus: all
    ports: ["127.0.0.1:9000:8080"]
    volumes: ["./models:/models:ro", "./logs:/logs", "./own:/own"]
    environment: {TZ: Europe/Berlin}
    command: -m /models/a.gguf -c 8192 -ngl 99 --log-file /logs/a.log --slots
"""


def test_a_new_rig_needs_a_folder_of_its_own(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is inspected or written before."""
    monkeypatch.setattr(fleet_folder, "inspect_hardware", lambda _connect: found_host("duo"))
    monkeypatch.delenv("HERD_INVENTORY", raising=False)
    other = fleet.parent / "other"
    other.mkdir()
    (other / "start.sh").write_text(f"{SERVER}\n")
    monkeypatch.chdir(other)
    words = ["import", "start.sh", *MODEL, "--from", "new.lan", "--dry-run"]
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 0, ended.output
    (other / "notes.txt").write_text("mine")
    ended = CliRunner().invoke(main, words)
    assert (ended.exit_code, "the current folder has other files" in ended.output) == (1, True)
    ended = CliRunner().invoke(main, [*words, "-i", "none"])
    assert (ended.exit_code, "create it: `mkdir -p none`" in ended.output) == (1, True)
    assert {each.name for each in other.iterdir()} == {"start.sh", "notes.txt"}


def test_a_container_becomes_a_unit_where_the_engine_is_built(fleet: Path) -> None:
    ended = imported(fleet, "compose.yaml", COMPOSE, *MODEL, "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert (each["port"], each["extra_args"], "backend" in each) == (9000, ["--slots"], False)
    text = "\n".join(comments(fleet))
    assert "it is a unit of systemd, not a container" in text
    assert "`--log-file /logs/a.log` is not used: " in text
    assert "`./own` is not mounted" in text
    assert "variables of the file are not set: `TZ`" in text


def test_an_engine_of_its_kind_is_added(fleet: Path) -> None:
    script = "git clone https://github.com/ikawrakow/ik_llama.cpp\n"
    ended = imported(fleet, "a.sh", f"{script}{SERVER} -fmoe\n", *MODEL, "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert "ik: {kind: ik_llama.cpp, ref: main}" in ended.output


def test_an_instance_that_does_not_fit_is_refused_with_the_findings(fleet: Path) -> None:
    ended = imported(fleet, "a.sh", f"{SERVER} -dev CUDA0\n", "--model", f"{REPO}:F16", "--yes")
    assert ended.exit_code == 1, ended.output
    assert "has mistakes; nothing was written" in ended.output
    assert (fleet / "duo.yaml").read_text() == RIG


def test_what_the_file_lets_the_engine_place_is_placed(fleet: Path) -> None:
    ended = imported(fleet, "a.sh", "llama-server -m a.gguf -dev CUDA0 -c 8192\n", "--model", MOE, "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert each["experts_on_cpu"]


def test_a_rig_without_gpus_runs_it_on_the_cpu(fleet: Path) -> None:
    head, _, rest = RIG.partition("gpus:")
    (fleet / "duo.yaml").write_text(head + "engines:" + rest.partition("engines:")[2])
    ended = imported(fleet, "a.sh", f"CUDA_VISIBLE_DEVICES=0 {SERVER} -sm layer\n", *MODEL, "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert not {"on", "gpu_layers", "split"} & {*each}
    assert "# differs: it runs on the CPU: the file takes 1" in comments(fleet)
    assert "# differs: `-ngl 99` is not used" in comments(fleet)


def test_more_layers_of_experts_than_there_are_mean_all(fleet: Path) -> None:
    script = "llama-server -m a.gguf -dev CUDA1 -ngl 99 --n-cpu-moe 99 -c 8192\n"
    ended = imported(fleet, "a.sh", script, "--model", MOE, "--yes")
    assert ended.exit_code == 0, ended.output
    (each,) = instances(fleet).values()
    assert each["experts_on_cpu"] == "all"
    assert not any("tensors" in line for line in comments(fleet))


def test_without_a_hub_a_dry_run_names_what_is_not_compared(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ended = imported(fleet, "a.sh", f"{SERVER}\n", *MODEL, "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert "# not compared: memory" in ended.output


@pytest.mark.parametrize(
    ("name", "text", "words", "code", "message"),
    [
        ("a.sh", f"{SERVER}\n", ["--yes"], 1, "add `--model OWNER/NAME:QUANT`"),
        ("a.sh", f"{SERVER}\n", [*MODEL], 2, "add --yes"),
        ("a.sh", f"{SERVER}\n", [*MODEL, "--json"], 2, "--json needs --yes"),
        ("a.sh", f"{SERVER}\n", ["--model", "what is this", "--yes"], 1, "write OWNER/NAME:QUANT"),
        ("a.sh", f"{SERVER}\n", ["--rig", "dou", "--yes"], 1, "there is no rig `dou`"),
        ("a.sh", "echo hello\n", ["--yes"], 1, "starts no server"),
        ("a.sh", "llama-server --models-dir /srv\n", ["--yes"], 1, "does not name its models"),
        ("a.txt", "buy milk\n", ["--yes"], 2, "LH001"),
        ("config.yaml", SWAP, [*MODEL, "--yes"], 1, "names none of the models"),
        ("config.yaml", SWAP, ["--yes"], 1, "--model small-one=OWNER/NAME:QUANT"),
    ],
    ids=str,
)
def test_what_is_refused_writes_nothing(
    fleet: Path, name: str, text: str, words: list[str], code: int, message: str
) -> None:
    ended = imported(fleet, name, text, *words)
    assert (ended.exit_code, message in ended.output) == (code, True), ended.output
    assert (fleet / "duo.yaml").read_text() == RIG
    assert not (fleet / "herd.lock").exists()


def test_a_file_that_is_not_there(fleet: Path) -> None:
    ended = CliRunner().invoke(main, ["import", str(fleet / "none.sh"), "--dry-run", "--json", "-i", str(fleet)])
    assert ended.exit_code == 2
    assert json.loads(ended.stdout)["errors"][0]["message"].startswith("cannot read")
