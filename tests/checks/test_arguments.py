"""What users hand on word for word: arguments, environment, CMake options; where that stands, and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.arguments import (
    check_abilities,
    check_catalogue_versions,
    check_cmake_options,
    check_command_line,
)
from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines import flags_of
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support.rigs import GONE, changed, cpu_rig

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
    document = read_yaml(file)
    subject = RigContext(rig_facts(Rig.model_validate(document.data, context={"folder": file.parent}), {}), document)
    findings = [
        finding
        for check in (check_command_line, check_abilities, check_cmake_options, check_catalogue_versions)
        for finding in check(subject)
    ]
    return sorted(findings, key=lambda finding: finding.place)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--max-num-batched-tokens", "8192"], "LH116"),
        (["--override-generation-config", '{"temperature": 1}'], "LH210"),
        (["--default-chat-template-kwargs", '{"enable_thinking": true}'], "LH210"),
        (["--speculative-config", '{"method": "ngram"}'], None),
        (["--seed", "3"], None),  # of the engine, not of a request's sampling
        (["--ubatch-size", "4"], None),  # microbatches of another kind
    ],
)
def test_flags_of_vllm_are_compared_with_its_own_keys(arguments: list[str], code: str | None, tmp_path: Path) -> None:
    vllm = {"kind": "vllm", "image": f"vllm/vllm-openai:v0.33.0@sha256:{'ab' * 32}"}
    keys = {"sampling": {"temperature": 0.5}, "thinking": False, "ubatch": None, "draft": None}
    changes = {f"instances/chat/{key}": value for key, value in (keys | {"extra_args": arguments}).items()}
    said = [
        finding.code
        for finding in found({"engines/main": vllm, "instances/chat/backend": "compose"} | changes, tmp_path)
    ]
    assert said == ([code] if code else [])


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
        ("--model", "LH210", "error"),
        ("--ctx-size", "LH210", "error"),
        ("--mtp-draft", "LH100", "error"),
        ("--host", "LH118", "error"),
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


def test_a_host_in_the_lan_is_said_by_the_key_even_with_an_api_key(tmp_path: Path) -> None:
    (finding,) = found({"instances/chat/extra_args": ["--host", "0.0.0.0"]}, tmp_path)
    assert (finding.code, finding.severity) == ("LH210", "error")
    assert "`listen: 0.0.0.0`" in finding.help


KEYLESS: dict[str, Any] = {"instances/chat/api_key": None}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"extra_args": ["--host", "0.0.0.0"]}, {"LH118"}),
        ({"extra_args": ["--host", "192.168.1.7"]}, {"LH118"}),
        ({"extra_args": ["--host", "rig.lan"]}, {"LH118"}),
        ({"extra_args": ["--host", "/run/llama.sock"]}, {"LH210"}),
        ({"extra_args": ["--port", "9000"]}, {"LH210"}),
        ({"extra_args": ["--port", "8080"]}, {"LH116"}),
        ({"extra_args": ["-m", "/srv/other.gguf"]}, {"LH210"}),
        ({"extra_args": ["-a", "other"]}, {"LH210"}),
        ({"extra_args": ["-c", "4096"]}, {"LH210"}),
        ({"extra_args": ["-t", "1"]}, {"LH116"}),
        ({"extra_args": ["-t", "1"], "threads": 2}, {"LH210"}),
        ({"extra_args": ["-t", "3"]}, {"LH060"}),
        ({"extra_args": ["--api-key-file", "/srv/key"]}, {"LH210"}),
        ({"extra_args": ["--device", "none"]}, {"LH210"}),
        ({"extra_args": ["--ssl-key-file", "k", "--ssl-cert-file", "c"]}, {"LH210"}),
        ({"extra_args": ["--api-prefix", "/llm"]}, {"LH210"}),
        ({"extra_args": ["--tools", "all"]}, {"LH211"}),
        ({"extra_args": ["-fa", "off"]}, {"LH054"}),
        ({"environment": {"LLAMA_ARG_HOST": "0.0.0.0"}}, {"LH210"}),
        ({"environment": {"LLAMA_ARG_PORT": "9000"}}, {"LH210"}),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, {"LH210"}),
        ({"environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}, set()),
        ({"environment": {"XDG_CONFIG_HOME": "/srv/config"}}, {"LH210"}),
        ({"environment": {"LLAMAHERD_SPEC": "1"}}, {"LH210"}),
        ({"environment": {"LLAMA_ARG_CACHE_REUSE": "256"}}, set()),
        ({"extra_args": ["--metrics", "--slots"]}, set()),
    ],
)
@pytest.mark.parametrize("backend", ["systemd", "compose"])
def test_what_contradicts_the_rig_is_an_error(
    changes: dict[str, Any], backend: str, expected: set[str], tmp_path: Path
) -> None:
    """A container that stays on loopback is in the host's network: what it is told opens it, as it does a unit."""
    of_chat = {f"instances/chat/{key}": value for key, value in {**changes, "backend": backend}.items()}
    said = found(KEYLESS | of_chat, tmp_path)
    assert {finding.code for finding in said} == expected
    assert all(finding.severity == "error" for finding in said if finding.code in {"LH118", "LH210"})


def test_the_fork_listens_where_a_variable_says(tmp_path: Path) -> None:
    """It beats the command line there, so that the server would be open."""
    fork = {"engines/main/kind": "ik_llama.cpp", "engines/main/source/version": GONE, "engines/main/flags": "8337e4cd3"}
    variable = {"instances/chat/environment": {"LLAMA_ARG_HOST": "0.0.0.0"}}
    said = found(KEYLESS | fork | variable, tmp_path)
    assert {"LH118", "LH122"} <= {finding.code for finding in said if finding.severity == "error"}


def test_a_physical_batch_is_held_against_the_other_one_in_keys_too(tmp_path: Path) -> None:
    (finding,) = found({"instances/chat/ubatch": 4096}, tmp_path)
    line = finding.place.file.read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    assert (finding.code, line[finding.place.column - 1 :]) == ("LH219", "4096")
