"""What a shell takes for its own in an argument, and assignments with blanks."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.recipes import examine, understand

SERVE = "llama-server -m /srv/a.gguf -c 8192 "


def found(text: str, folder: Path) -> list[tuple[str, int]]:
    (folder / "a.sh").write_text(text, encoding="utf-8")
    return [(each.code, each.place.column) for each in examine(folder / "a.sh")]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (SERVE + "-ot exps=CPU;attn=CUDA0 -ngl 99", 49),
        (SERVE + r"-ot blk\.(1|2)\.ffn_.*_exps=CPU -ngl 99", 46),
        (SERVE + "--override-tensor blk.[0-9]|blk.1.=CPU", 64),
        ("cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=86;120", 60),
        ("cmake -B build -DGGML_CUDA=ON -DGGML_CUDA_FA_QUANTS=q8_0-q8_0;q4_0-q4_0", 62),
        (SERVE + "-ts 3;1", 42),
        (f"MODEL = /srv/a.gguf\n{SERVE}", 1),
        (f"export CUDA_VISIBLE_DEVICES = 0\n{SERVE}", 8),
        (f"CTX= 8192\n{SERVE}", 6),
    ],
)
def test_a_command_that_ends_where_nobody_meant_it(text: str, column: int, tmp_path: Path) -> None:
    assert found(text + "\n", tmp_path) == [("LH141", column)]


@pytest.mark.parametrize(
    "text",
    [
        SERVE + "-ot 'exps=CPU;attn=CUDA0'|tee log",
        SERVE + r"-ot blk\.\(1\|2\)\.ffn_.*_exps=CPU",
        SERVE + "-ot exps=CPU|tee log",
        SERVE + "-np 1;echo done",
        "cmake -B build -DGGML_CUDA=ON;cmake --build build",
        "cmake -B build -DGGML_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=86;120'",
        "main() { llama-server -m a.gguf -c 8192; }",
        "CUDA_VISIBLE_DEVICES= llama-server -m a.gguf -c 8192 --device none",
        "[ $A = 1 ] && llama-server -m a.gguf -c 8192",
        "test x = x && llama-server -m a.gguf -c 8192",
    ],
)
def test_nothing_is_said_of_what_is_meant(text: str, tmp_path: Path) -> None:
    assert [code for code, _ in found(text + "\n", tmp_path) if code in ("LH141", "LH100")] == []


def test_the_rest_of_such_a_command_is_read(tmp_path: Path) -> None:
    assert found(SERVE + "-ot a=CPU;b=CPU --flash-atn on\n", tmp_path) == [("LH141", 46), ("LH100", 53)]
    (server,) = understand(tmp_path / "a.sh").servers
    assert str(server.value("-c")) == "8192"
