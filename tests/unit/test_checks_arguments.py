"""What users hand on word for word: arguments, environment, CMake options; where that stands, and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.arguments import abilities, arguments, options, versions
from llamaherd.checks.subject import Subject
from llamaherd.engines import flags_of
from llamaherd.findings import Finding
from llamaherd.fleet import Rig
from llamaherd.yamlfile import read
from tests.support.rigs import changed, cpu_rig

# The launch line of a blog (seeds of rig 2), as it would be pasted.
BLOG = r"""--model ./models/qwen3-35b-a3b-instruct-q4_k_xl.gguf \
--ctx-size 65536 \
--mtp-draft 2 \
--host 0.0.0.0 \
--flash-attn \
--cache-reuse \
--no-mmap \
--log-filename '/app/logs/inference.log'
"""


def found(changes: dict[str, Any], folder: Path) -> list[Finding]:
    """What the checks say of the rig with these changes, in the order of places."""
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(changed(cpu_rig(), changes), sort_keys=False, width=1000), encoding="utf-8")
    return findings_of(file)


def findings_of(file: Path) -> list[Finding]:
    document = read(file)
    subject = Subject(Rig.model_validate(document.data, context={"folder": file.parent}), document)
    findings = [finding for check in (arguments, abilities, options, versions) for finding in check(subject)]
    return sorted(findings, key=lambda finding: finding.place)


def test_a_launch_line_pasted_as_it_is(tmp_path: Path) -> None:
    pasted = "    extra_args: |\n" + "".join(f"      {line}\n" for line in BLOG.splitlines())
    text = yaml.safe_dump(changed(cpu_rig(), {"instances/chat/api_key": None}), sort_keys=False)
    file = tmp_path / "rig.yaml"
    file.write_text(text.replace("    port: 8080\n", f"    port: 8080\n{pasted}"), encoding="utf-8")
    lines = file.read_text(encoding="utf-8").splitlines()
    said = []
    for finding in findings_of(file):
        word = lines[finding.place.line - 1][finding.place.column - 1 :].split()[0]
        said.append((word, finding.code, finding.severity))
    assert said == [
        ("--model", "LH116", "warning"),
        ("--ctx-size", "LH116", "warning"),
        ("--mtp-draft", "LH100", "error"),
        ("--host", "LH118", "warning"),
        ("--flash-attn", "LH103", "error"),
        ("--cache-reuse", "LH103", "error"),
        ("--no-mmap", "LH101", "error"),
        ("--log-filename", "LH100", "error"),
    ]


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        (["--mtp-draft", "2"], "`draft: {mtp: 2}`"),
        (["--no-mmap"], "`mmap: false`"),
        (["--ctx-size", "65536"], "write `context: 65536` as a key of the instance"),
        (["--temp", "0.6"], "`sampling: {temperature: 0.6}`"),
        (["-fa"], "`flash_attention: on`"),
        (["--log-filename", "x"], "write `--log-file x`"),
    ],
)
def test_the_way_out_is_a_key_where_there_is_one(words: list[str], help_: str, tmp_path: Path) -> None:
    (finding,) = found({"instances/chat/extra_args": words}, tmp_path)
    assert help_ in finding.help
    line = finding.place.file.read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    assert line[finding.place.column - 1 :] == words[0]


@pytest.mark.parametrize(
    ("changes", "code", "at"),
    [
        ({"instances/chat/environment": {"LLAMA_ARG_NOPE": "1"}}, "LH120", "LLAMA_ARG_NOPE"),
        ({"engines/main/options": {"LLAMA_CUBLAS": True}}, "LH130", "LLAMA_CUBLAS"),
        ({"engines/main/flags": "latest"}, "LH175", "latest"),
    ],
)
def test_other_words(changes: dict[str, Any], code: str, at: str, tmp_path: Path) -> None:
    (finding,) = found(changes, tmp_path)
    line = finding.place.file.read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    assert (finding.code, line[finding.place.column - 1 :].split(":")[0]) == (code, at)


@pytest.mark.parametrize(
    ("version", "taken", "severity"),
    [
        ("b4000", "b9093", "warning"),
        ("b10500", "b10306", "note"),
        ("b12000", "b11434", "note"),
        ("b11434", "b11434", ""),
    ],
)
def test_flags_of_a_version_that_is_not_known(version: str, taken: str, severity: str, tmp_path: Path) -> None:
    """What is older than all is not taken for the newest; what lies between is taken for the one before."""
    engine = {"engines/main": {"kind": "llama.cpp", "source": {"git": "https://git.lan/llama.cpp", "ref": version}}}
    rig = Rig.model_validate(changed(cpu_rig(), engine))
    known = flags_of(rig.engines["main"])
    assert known is not None
    assert known.version == taken
    said = [(one.severity, taken in one.message) for one in found(engine, tmp_path) if one.code == "LH175"]
    assert said == ([(severity, True)] if severity else [])


def test_a_host_in_the_lan_with_a_key_is_no_secret(tmp_path: Path) -> None:
    said = found({"instances/chat/extra_args": ["--host", "0.0.0.0"]}, tmp_path)
    assert [finding.code for finding in said] == []


def test_nothing_is_said_of_what_is_right(tmp_path: Path) -> None:
    right = {
        "instances/chat/extra_args": ["--log-file", "/tmp/x", "--no-webui"],
        "instances/chat/environment": {"GGML_CUDA_P2P": "1"},
        "engines/main/options": {"GGML_LTO": True},
    }
    assert found(right, tmp_path) == []


def test_a_version_that_cannot_draft_with_a_head(tmp_path: Path) -> None:
    """b9093 has `--spec-type`, and no `draft-mtp` for it."""
    (finding,) = found({"engines/main/flags": "b9093"}, tmp_path)
    assert (finding.code, finding.severity) == ("LH176", "error")
    assert "llama.cpp b9093 cannot do what `draft` says" in finding.message
    assert "newer version" in finding.help
    assert found({"engines/main/flags": "b9246"}, tmp_path) == []
