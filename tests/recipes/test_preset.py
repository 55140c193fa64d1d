"""Preset files of llama-server's router: what it refuses, and what it takes for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamaherd.recipes import examine, kind_of, understand

MODEL = "model = /srv/a.gguf"


def said(folder: Path, text: str, name: str = "models.ini") -> list[tuple[int, str]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return [(finding.place.line, finding.code) for finding in examine(file)]


RIGHT = f"""\
version = 1

; for every model
[*]
ctx-size = 8192   # enough
ngl = all
jinja = true

[user/model:Q4_K_M]
flash-attn = on

[qwen]
{MODEL}
LLAMA_ARG_CTX_SIZE = 65536
no-warmup = 1
load-on-startup = true
stop-timeout = 30
"""


@pytest.mark.parametrize(
    "text", [RIGHT, RIGHT.replace("\n", "\r\n"), f"[a]\n{MODEL}", "[a]\nhf-repo = a/b\nctk = q8_0\n"]
)
def test_what_is_right_is_let_be(text: str, tmp_path: Path) -> None:
    found = [(line, code) for line, code in said(tmp_path, text)]
    assert found == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("context = 8192", [(3, "LH270")]),
        ("load-on-start = true", [(3, "LH270")]),
        ("system-prompt = hi", [(3, "LH270")]),
        ("no-mmap = true", [(3, "LH101")]),
        ("--ctx-size = 8192", [(3, "LH270")]),
        ("  ctx-size = 8192", [(3, "LH270")]),
        ("ctx-size: 8192", [(3, "LH270")]),
        ("jinja", [(3, "LH270")]),
        ("samplers = top_k;top_p", [(3, "LH271")]),
        ("alias = b,c\nmmproj = /srv/p#1.gguf", [(4, "LH271")]),
        ("top_p = 0.9", [(3, "LH270")]),
        ("filename = x.gguf\nn-ctx = 32768", [(3, "LH270"), (4, "LH270")]),
        ("[*]\nparallel = 1\n[b]\nmodel = b.gguf\nspec-type = draft-mtp", []),
        ("[*]\nctx-size = 32k\n[b]\nmodel = b.gguf\nctx-size = 4096", [(4, "LH111")]),
        ("ctx-size = {{ context }}\nctk = {{ kv }}", []),
        ('mmproj = "/srv/p.gguf"', [(3, "LH271")]),
        ("mmproj = ~/p.gguf", [(3, "LH271")]),
        ("mmproj = $HOME/p.gguf", [(3, "LH271")]),
        ("jinja = no", [(3, "LH271")]),
        ("jinja = off", []),
        ("host = 0.0.0.0", [(3, "LH271")]),
        ("api-key = k", [(3, "LH271")]),
        ("models-max = 1", [(3, "LH271")]),
        ("ctx-size = 32k", [(3, "LH111")]),
        ("ctk = q4_k", [(3, "LH106")]),
        ("ctv = q8_0\nfa = off", [(3, "LH054")]),
        ("ctx-size = 8192\nparallel = 4", [(3, "LH214")]),
        (f"[a]\n{MODEL}", [(3, "LH271")]),
        (f"[*]\n{MODEL}", [(4, "LH271")]),
        ("[b]\nctx-size = 1024", [(3, "LH271")]),
    ],
)
def test_a_line_that_is_wrong_is_said(lines: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert said(tmp_path, f"[a]\n{MODEL}\n{lines}\n") == expected


def test_what_stands_above_all_sections_is_a_model(tmp_path: Path) -> None:
    assert said(tmp_path, f"ctx-size = 8192\n[a]\n{MODEL}\n") == [(1, "LH271")]


def test_the_way_out_is_written_as_presets_are(tmp_path: Path) -> None:
    file = tmp_path / "models.ini"
    file.write_text(f"[a]\n{MODEL}\nno-mmap = true\n", encoding="utf-8")
    assert [finding.help for finding in examine(file)] == ["write `load-mode = none`"]
    file.write_text(f"[a]\n{MODEL}\nload-on-start = true\n", encoding="utf-8")
    assert [finding.help for finding in examine(file)] == ["did you mean `load-on-startup`?"]


def test_a_page_shows_a_preset(tmp_path: Path) -> None:
    prose = "This page tells how the router is told of models, and what each of them is good for.\n\n"
    assert said(tmp_path, f"{prose}```ini\n[a]\n{MODEL}\ncontext = 1\n```\n", "page.md") == [(6, "LH270")]


@pytest.mark.parametrize(
    "text",
    [
        "[agent]\nmodel = gpt\ntemperature = 1\n",
        "[core]\neditor = vi\n",
        "[server]\nhost = a\nport = 1\n",
        "[a]\nmodel\nhost\n",
    ],
)
def test_files_of_other_programs_are_none(text: str) -> None:
    assert kind_of(Path("settings.ini"), text) is None


def test_each_section_is_a_server_with_what_all_have(tmp_path: Path) -> None:
    """The second section of one name replaces the first; a name with a slash is a model of the hub."""
    file = tmp_path / "models.ini"
    text = f"{RIGHT}[a]\n{MODEL}\n[a]\nmodel = /srv/b.gguf\nctx-size = 512\njinja = off\nport = 1\n"
    file.write_text(text, encoding="utf-8")
    found = {each.served_as: [str(word) for word in each.arguments] for each in understand(file).servers}
    common = ["--ctx-size", "8192", "-ngl", "all", "--jinja"]
    assert found["user/model:Q4_K_M"] == ["-hf", "user/model:Q4_K_M", *common, "--flash-attn", "on"]
    assert found["qwen"][:6] == ["-ngl", "all", "--jinja", "--model", "/srv/a.gguf", "--ctx-size"]
    assert found["a"] == ["-ngl", "all", "--model", "/srv/b.gguf", "--ctx-size", "512", "--no-jinja"]
    assert {each.group for each in understand(file).servers} == {"router"}
