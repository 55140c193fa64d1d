"""Recipes as newcomers paste them, whole: everything wrong with each, at its place, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamaherd.inventory.schema import Instance
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.recipes import examine, is_recipe, kind_of, understand
from llamaherd.recipes.recipe import LARGEST
from llamaherd.recipes.suggestions import inventory_fragment

DATA = Path(__file__).parents[1] / "data" / "recipes"
KEY = "add `--api-key-file` with a file of keys, or write `--host 127.0.0.1`"
DIGEST = "name the image by its digest, NAME@sha256:…, as `docker buildx imagetools inspect IMAGE` shows it"
BOOT = "declare it in the inventory, where it is set at every boot and verified"
CMAKE = "write `cmake -B build -DGGML_CUDA=ON && cmake --build build --config Release -j`"
ARGUMENTS = "leave it out of the command: with the server image the command is the arguments alone"
NO_VRAM = "leave it out: WSL gives Linux the whole GPU, and how much VRAM that is cannot be set"
GPU = "add `--gpus all`; in Compose, a device reservation under `deploy.resources.reservations.devices`"

EXPECTED: dict[str, list[tuple[int, int, str, str, str]]] = {
    # An RTX 5090 under WSL2: the launch script, the build, the Compose file and the .wslconfig of one article.
    "launch_mtp_server.sh": [
        (
            7,
            26,
            "LH160",
            "note",
            "give the number of physical cores; of more than 16 without siblings, leave some free",
        ),
        (14, 1, "LH100", "error", "write `--spec-type draft-mtp --spec-draft-n-max 2`"),
        (14, 1, "LH213", "note", "add `--parallel 1` for one user: 3 copies"),
        (16, 1, "LH144", "error", KEY),
        (17, 1, "LH103", "error", "write `--flash-attn on`"),
        (18, 1, "LH103", "error", "give it a value, or leave `--cache-reuse` out"),
        (19, 1, "LH101", "error", "write `--load-mode none`"),
    ],
    "build-wsl.sh": [
        (2, 11, "LH140", "warning", "write `https://github.com/ggml-org/llama.cpp.git`"),
        (7, 1, "LH140", "error", "write `hf download`"),
    ],
    "docker-compose.yml": [
        (5, 12, "LH140", "error", "write `ghcr.io/ggml-org/llama.cpp:server-cuda`, and its digest after it"),
        (5, 12, "LH143", "error", "use `ghcr.io/ggml-org/llama.cpp:server-cuda`, which starts llama-server"),
        (5, 12, "LH145", "warning", DIGEST),
        (17, 9, "LH144", "error", "write `127.0.0.1:8080:8080`, or add `--api-key-file` with a file of keys"),
        (
            26,
            7,
            "LH143",
            "error",
            "leave it out of the command: with the server image the command is the arguments alone",
        ),
        (
            *(27, 15, "LH142", "error"),
            "write the value itself, `/models/qwen3-35b-a3b-instruct-q4_k_xl.gguf`, or put `MODEL_PATH` into .env",
        ),
        (28, 18, "LH142", "error", "write the value itself, `65536`, or put `CTX_SIZE` into .env"),
        (29, 20, "LH142", "error", "write the value itself, `99`, or put `GPU_LAYERS` into .env"),
        (30, 7, "LH100", "error", "write `--spec-type draft-mtp --spec-draft-n-max 2`"),
        (30, 7, "LH213", "note", "add `--parallel 1` for one user: 3 copies"),
        (30, 19, "LH142", "error", "write the value itself, `2`, or put `MTP_DRAFT` into .env"),
        (31, 14, "LH142", "error", "write the value itself, `8080`, or put `PORT` into .env"),
        (33, 7, "LH103", "error", "write `--flash-attn on`"),
        (34, 7, "LH103", "error", "give it a value, or leave `--cache-reuse` out"),
        (35, 7, "LH101", "error", "write `--load-mode none`"),
        (36, 7, "LH100", "error", "write `--log-file /app/logs/inference.log`"),
    ],
    "wsl.wslconfig": [
        (5, 1, "LH147", "error", NO_VRAM),
    ],
    # Six RTX 3090s.
    "qwen-3.5-122B.sh": [
        (7, 1, "LH149", "note", "let systemd run it: `herd up` writes the unit"),
        (9, 5, "LH144", "error", KEY),
    ],
    "build-six.sh": [(4, 3, "LH133", "warning", "write `-DGGML_CUDA_FA_QUANTS=all`")],
    # One RTX 3070.
    "budget.sh": [
        (7, 1, "LH103", "error", "write `--flash-attn on`"),
        (8, 1, "LH107", "error", "write `--op-offload` alone"),
    ],
    # Flags alone, from an article about a laptop.
    "olares.txt": [(4, 1, "LH114", "warning", "write `--reasoning off`")],
    # A whole article, its prose between commands.
    "article.md": [
        (9, 1, "LH147", "error", NO_VRAM),
        (15, 13, "LH140", "warning", "write `https://github.com/ggml-org/llama.cpp`"),
        (16, 18, "LH130", "error", "write `-DGGML_CUDA=ON`"),
        (23, 3, "LH101", "error", "write `--load-mode none`"),
        (23, 13, "LH103", "error", "write `-fa on`"),
        (32, 5, "LH213", "note", "add `--parallel 1` for one user: 3 copies"),
        (32, 27, "LH101", "error", "write `--spec-draft-n-max 2`"),
    ],
    # What else is found on the way.
    "array.sh": [
        (7, 3, "LH101", "error", "write `--load-mode none`"),
        (8, 3, "LH101", "error", "write `--spec-draft-n-max 16`"),
        (8, 3, "LH212", "warning", "add `--spec-type draft-mtp` for a model with a prediction head, or leave it out"),
    ],
    "broken.sh": [
        (
            1,
            28,
            "LH141",
            "error",
            "make the backslash the last character of its line, and put comments above the command",
        ),
        (
            *(4, 3, "LH141", "error"),
            "end every line of the command but the last with a backslash, and put no comment between them",
        ),
    ],
    "cublas.sh": [
        (2, 30, "LH140", "error", CMAKE),
        (3, 16, "LH130", "error", "write `-DGGML_CUDA=ON`"),
        (4, 1, "LH140", "error", "write `llama-server` in its place"),
    ],
    "docker-run.sh": [
        (2, 28, "LH143", "error", "publish `8000:8080`, or pass `--port 8000`"),
        (3, 5, "LH143", "error", GPU),
        (3, 5, "LH145", "warning", DIGEST),
    ],
    "good-compose.yml": [],
    "heredoc.sh": [
        (5, 64, "LH103", "error", "write `--flash-attn on`"),
    ],
    "ik.sh": [
        (
            *(7, 45, "LH101", "warning"),
            "leave it out: ik_llama.cpp fuses the experts by default (`-no-fmoe` turns it off), "
            "and llama.cpp has no such switch",
        ),
    ],
    "llama.service": [
        (6, 58, "LH121", "error", "leave the variable out"),
        (8, 15, "LH144", "error", KEY),
        (9, 6, "LH142", "error", "write the value itself"),
        (9, 15, "LH101", "error", "write `--load-mode mmap+mlock`"),
        (10, 9, "LH196", "note", "add `RestartSec=5`, and `StartLimitIntervalSec=` under `[Unit]`"),
    ],
    "ncpumoe.sh": [
        (1, 17, "LH149", "note", BOOT),
        (2, 17, "LH149", "note", BOOT),
        (3, 17, "LH149", "note", "copy the model into Linux's own file system, such as ~/models"),
        (3, 103, "LH103", "error", "write `-fa on`"),
    ],
    "vllm.yaml": [
        (3, 5, "LH268", "note", "add `restart: unless-stopped`"),
        (3, 12, "LH145", "warning", DIGEST),
        (5, 13, "LH144", "error", "write `127.0.0.1:8000:8000`, or set `VLLM_API_KEY` in its environment"),
    ],
}
FRAGMENTS = {
    "launch_mtp_server.sh": """\
# `qwen3-35b-a3b-instruct-q4_k_xl` is launch_mtp_server.sh:9
# `qwen3-35b-a3b-instruct-q4_k_xl`: `--threads $(nproc)` is not carried over: its value is set elsewhere
# `qwen3-35b-a3b-instruct-q4_k_xl`: `--cache-reuse` is not carried over: see its finding
# name the engine, the model and the GPUs as your rig does
# write a key of your own into the file keys/server in the inventory folder
instances:
  qwen3-35b-a3b-instruct-q4_k_xl:
    engine: llama.cpp
    model: qwen3-35b-a3b-instruct-q4_k_xl
    on: [card1]
    gpu_layers: all
    context: 65536
    flash_attention: 'on'
    mmap: false
    draft: {mtp: 2}
    listen: 0.0.0.0
    port: 8080
    api_key: {file: keys/server}
""",
    "qwen-3.5-122B.sh": """\
# `qwen3.5-122b-a10b-ud-q6_k_xl` is qwen-3.5-122B.sh:7
# name the engine, the model and the GPUs as your rig does
# write a key of your own into the file keys/server in the inventory folder
instances:
  qwen3.5-122b-a10b-ud-q6_k_xl:
    engine: llama.cpp
    model: qwen3.5-122b-a10b-ud-q6_k_xl
    on: [card1, card2, card3, card4, card5, card6]
    split: layer
    tensor_split: [0.9, 1, 1, 1, 1, 1]
    gpu_layers: all
    context: 262144
    kv: q8_0
    parallel: 1
    warmup: false
    sampling: {temperature: 0.6, top_p: 0.95, top_k: 20, min_p: 0.0}
    listen: 0.0.0.0
    port: 8000
    api_key: {file: keys/server}
""",
    "olares.txt": """\
# `server` is olares.txt:1
# name the engine, the model and the GPUs as your rig does
instances:
  server:
    engine: llama.cpp
    model: server
    on: [card1]
    context: 32768
    kv: q4_0
    batch: 512
    ubatch: 512
    parallel: 1
    flash_attention: 'on'
    draft: {mtp: 3}
    thinking: false
    port: 8080
""",
    "ik.sh": """\
# `deepseek-v3-iq4_ks` is ik.sh:6
# name the engine, the model and the GPUs as your rig does
instances:
  deepseek-v3-iq4_ks:
    engine: ik_llama.cpp
    model: deepseek-v3-iq4_ks
    on: [card1]
    gpu_layers: all
    experts_on_cpu: all
    context: 32768
    kv: {k: q8_0}
    threads: 16
    flash_attention: 'on'
    port: 8082
    extra_args: [-mla, '3', -amb, '512', -rtr]
""",
    "build-six.sh": "",
}
KINDS = {".sh": "shell", ".service": "shell", ".txt": "shell", ".md": "shell", ".wslconfig": "wslconfig"}


def test_every_recipe_is_expected() -> None:
    assert {path.name for path in DATA.iterdir() if path.is_file()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_all_that_is_wrong_is_found_and_nothing_else(name: str) -> None:
    found = [(f.place.line, f.place.column, f.code, f.severity, f.help) for f in examine(DATA / name)]
    assert found == EXPECTED[name]
    assert {f.place.file for f in examine(DATA / name)} <= {DATA / name}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_command_is_said_as_an_instance(name: str) -> None:
    assert inventory_fragment(DATA / name, understand(DATA / name).servers) == FRAGMENTS[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_said_is_right_in_an_inventory(name: str, tmp_path: Path) -> None:
    written = tmp_path / "rig.yaml"
    written.write_text(
        inventory_fragment(DATA / name, understand(DATA / name).servers) or "instances: {}", encoding="utf-8"
    )
    for keys in read_yaml(written).data["instances"].values():
        Instance.model_validate({"context": 4096} | keys, context={"folder": DATA})


@pytest.mark.parametrize("name", EXPECTED)
def test_kinds_are_told_by_name_and_by_what_is_written(name: str) -> None:
    text = (DATA / name).read_text(encoding="utf-8")
    kind = KINDS.get(Path(name).suffix, "compose")
    assert kind_of(Path(name), text) == kind
    if kind == "wslconfig" or (kind == "shell" and Path(name).suffix != ".sh"):
        assert kind_of(Path("pasted"), text) == kind


def test_other_files_are_no_recipes() -> None:
    assert kind_of(Path("box.yaml"), "rig: box\n") == "inventory"
    assert kind_of(Path("box.yml"), "rig: box\nservices:\n") == "inventory"
    assert kind_of(Path("compose.yaml"), "") == "compose"
    assert kind_of(Path("notes.txt"), "buy milk\n") is None


def test_recipes_are_told_from_inventories(tmp_path: Path) -> None:
    for name, content, inventory in (
        ("rig.yaml", b"rig: box\n", True),
        ("compose.yaml", b"services: {}\n", False),
        ("large.yaml", b"#" * (LARGEST + 1), True),
        ("model.gguf", b"GGUF\xff" * LARGEST, False),
        ("start.sh", b"\xff", False),
    ):
        (tmp_path / name).write_bytes(content)
        assert is_recipe(tmp_path / name) is not inventory, name
    assert not is_recipe(tmp_path)
    assert not is_recipe(tmp_path / "missing.sh")


def test_what_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.sh").write_bytes(b"#" * (LARGEST + 1))
    (tmp_path / "bad-compose.yml").write_text("services: [\n", encoding="utf-8")
    (tmp_path / "list-compose.yml").write_text("- services\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("buy milk\n", encoding="utf-8")
    for name in ("binary.sh", "large.sh", "bad-compose.yml", "notes.txt", "missing.sh", ".", "a\0b"):
        (finding,) = examine(tmp_path / name)
        assert (finding.code, finding.severity) == ("LH001", "error"), name
    assert [finding.code for finding in examine(tmp_path / "list-compose.yml")] == ["LH002"]


def examined(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        recipe = understand(file)
        for finding in recipe.findings:
            assert finding.place.file == file
            assert 0 <= finding.place.line <= text.count("\n") + text.count("\r") + 2
        inventory_fragment(file, recipe.servers)


NAMES = st.sampled_from(["a.sh", "a.md", "a.service", "docker-compose.yml", ".wslconfig", "a.txt"])
PARTS = st.sampled_from(
    [
        *(
            "llama-server ",
            "llama-cli ",
            "vllm serve ",
            "docker run ",
            "cmake ",
            "-D",
            "ExecStart=",
            "git clone ",
            "A=",
        ),
        *("$A ", "${A[@]} ", "A=(", ")", "\\\n", "\\ \n", "\n", " ", "'", '"', "$(", "#", "&", "|", "<<E\n", "E\n"),
        *("--host ", "0.0.0.0 ", "-m ", "x-00002-of-00003.gguf ", "--mtp-draft ", "-fa ", "-ot ", "exps=CPU ", "-p "),
        *("services:\n", "  a:\n", "    image: ", "ghcr.io/ggml-org/llama.cpp:server-cuda", "    command: >\n      "),
        *(
            "    ports:\n",
            "      - 80:80\n",
            "    environment:\n",
            "[wsl2]\n",
            "memory=",
            "=",
            "-1",
            "é",
            "{}",
            "*a",
            "&a ",
        ),
    ]
)


@settings(deadline=None)
@given(NAMES, st.lists(PARTS, max_size=30).map("".join) | st.text())
def test_any_text_gives_findings(name: str, text: str) -> None:
    examined(text, name)


@settings(deadline=None)
@given(st.sampled_from(sorted(EXPECTED)), st.integers(0, 2000), st.integers(0, 30), PARTS | st.text(max_size=5))
def test_any_change_to_a_recipe_gives_findings(name: str, start: int, length: int, put_in: str) -> None:
    text = (DATA / name).read_text(encoding="utf-8")
    examined(text[:start] + put_in + text[start + length :], name)
