"""llama-swap's config.yaml: commands with macros, read as llama-swap does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llamaherd.recipes import examine, understand
from llamaherd.recipes.suggestions import inventory_fragment

RIGHT = """# llama-swap
healthCheckTimeout: 500
startPort: 10001
macros:
  latest-llama: /opt/llama.cpp/build/bin/llama-server --port ${PORT}
  wide: "${latest-llama} -c 65536 -np 4"
models:
  qwen:
    cmd: |
      ${wide}
      # the quant that fits
      --model /models/Qwen3.6-35B-A3B-UD-Q3_K_XL.gguf
      --n-gpu-layers 99
    ttl: 300
  "llama":
    proxy: http://127.0.0.1:9999
    cmd: llama-server --port 9999 -m /models/llama.gguf -c 8192 --alias ${MODEL_ID}
    env: ["CUDA_VISIBLE_DEVICES=0"]
  remote:
    macros: {size: 4096}
    cmd: >
      llama-server --port ${PORT} -m ${env.MODELS}/a.gguf
      -c ${size}
"""


def codes(text: str, folder: Path) -> list[tuple[str, int, int]]:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return [(each.code, each.place.line, each.place.column) for each in examine(file)]


def test_nothing_is_said_of_what_is_right(tmp_path: Path) -> None:
    assert codes(RIGHT, tmp_path) == []


def test_models_are_offered_as_a_group(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(RIGHT, encoding="utf-8")
    shown = inventory_fragment(tmp_path / "config.yaml", understand(tmp_path / "config.yaml").servers)
    instances = yaml.safe_load(shown)["instances"]
    assert [*instances] == ["qwen", "llama", "remote"]
    assert {(each["group"], each["port"]) for each in instances.values()} == {("models", 10001)}
    assert instances["qwen"]["idle"] == {"unload": "300s"}


def test_the_servers_are_known(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(RIGHT, encoding="utf-8")
    servers = understand(tmp_path / "config.yaml").servers
    assert [str(server.value("--port")) for server in servers] == ["10001", "9999", "10003"]
    assert str(servers[0].value("-np")) == "4"


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ("--n-gpu-layers 99", "--n-gpu-layer 99", [("LH100", 13, 7)]),
        ("-c 8192", "-c 8k", [("LH111", 17, 57)]),
        ("-c 65536 -np 4", "-c 65536 -np 4 --flash-atn on", [("LH100", 6, 41)]),
        ("${wide}", "${wde}", [("LH282", 9, 10), ("LH282", 10, 7)]),
        ("--port 9999", "--port 9999 --host 0.0.0.0", [("LH144", 17, 35)]),
        ("    proxy: http://127.0.0.1:9999\n", "", [("LH282", 16, 10)]),
        ("${PORT}\n", "${port}\n", [("LH282", 5, 62)]),
        ("--port 9999", "--port 9999 | tee log", [("LH282", 17, 35)]),
        ('env: ["CUDA_VISIBLE_DEVICES=0"]', "env: CUDA_VISIBLE_DEVICES=0", [("LH282", 18, 10)]),
        ("CUDA_VISIBLE_DEVICES=0", "LLAMA_ARG_CTX_SIZ=0", [("LH120", 18, 11)]),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(
    right: str, wrong: str, expected: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    assert right in RIGHT
    assert codes(RIGHT.replace(right, wrong), tmp_path) == expected


def test_an_inventory_is_none(tmp_path: Path) -> None:
    assert codes("rig: a\n" + RIGHT, tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "models:\n  a:\n    cmd: [llama-server]\n",
        "models:\n  - cmd: 1\n",
        "models:\n  a:\n    cmd: ${a}\n    macros: {a: '${b}${b}', b: '${a}${a}'}\n",
        "models:\n  a: 1\n  b:\n    cmd: ''\nmacros: [1]\n",
        "models:\n  a:\n   cmd: |\n    $" + "{a}" * 999 + "\n",
    ],
)
def test_anything_is_read(text: str, tmp_path: Path) -> None:
    assert {code for code, _, _ in codes(text, tmp_path)} <= {"LH282", "LH001"}


def test_a_macro_is_judged_once(tmp_path: Path) -> None:
    text = "macros:\n  base: llama-server --port ${PORT} --no-mmap\nmodels:\n"
    text += "".join(f"  m{n}:\n    cmd: ${{base}} -m /m/{n}.gguf -c 4096\n" for n in range(4))
    assert codes(text, tmp_path) == [("LH101", 2, 37)]
    lines = [server.start[0] for server in understand(tmp_path / "config.yaml").servers]
    assert lines == [5, 7, 9, 11]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("{members: [one]}", ("exclusive: of group a", True)),
        ("{members: [one], exclusive: false}", (None, False)),
        ("{members: [two]}", ("that others end when it starts", True)),
    ],
)
def test_what_ends_when_another_starts_is_named(group: str, expected: tuple[str | None, bool], tmp_path: Path) -> None:
    text = f"groups:\n  a: {group}\nmodels:\n  one:\n    cmd: llama-server --port ${{PORT}} -m /m/a.gguf\n"
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    (server,) = understand(tmp_path / "config.yaml").servers
    assert (next(iter(server.dropped), None), server.alone) == expected
