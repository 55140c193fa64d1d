"""What the headers of models say against what instances want: heads, contexts, experts, and what cards and RAM hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.memory import memory
from llamaherd.checks.models import beside_models, drafting, models
from llamaherd.checks.subject import Subject
from llamaherd.findings import Finding
from llamaherd.fleet import Rig
from llamaherd.gguf.header import Header
from llamaherd.yamlfile import read
from tests.support.headers import gemma3, qwen_35b, qwen_122b
from tests.support.rigs import ROOT, changed

EXAMPLES = ROOT / "inventory" / "examples"


def found(rig: str, headers: Mapping[str, Header], changes: Mapping[str, Any], folder: Path) -> list[Finding]:
    """What the checks say of an example with these changes."""
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(changed(read(EXAMPLES / f"{rig}.yaml").data, changes)), encoding="utf-8")
    document = read(file)
    subject = Subject(Rig.model_validate(document.data, context={"folder": folder}), document, headers)
    return [finding for check in (models, beside_models, drafting, memory) for finding in check(subject)]


ONE = {"35b": qwen_35b("Q3_K")}
HEADLESS = {"35b": qwen_35b("Q3_K", mtp=False)}
DUO = {"122b": qwen_122b("IQ3_S"), "35b": qwen_35b("Q4_K", "Q5_K")}
CASES: dict[str, tuple[str, Mapping[str, Header], dict[str, Any], str, str]] = {
    "no head": ("one", HEADLESS, {}, "LH170", "no prediction head.*leave `draft` out"),
    "too much context": (
        "one",
        ONE,
        {"instances/chat/context": 400_000, "instances/chat/kv": "q4_0"},
        "LH171",
        "trained for 262144 tokens.*`context: 262144`",
    ),
    "no experts": ("one", {"35b": gemma3()}, {"instances/chat/experts_on_cpu": "50%"}, "LH172", "has no experts"),
    "more layers than there are": (
        "one",
        ONE,
        {"instances/chat/experts_on_cpu": 41},
        "LH172",
        "in 40 layers, and 41 are wanted.*`experts_on_cpu: 40`",
    ),
    "ik of April": ("duo", DUO, {"engines/ik/flags": "67268c8fd"}, "LH173", "cannot load `122b`.*newer commit"),
    "llama.cpp drafts through the RAM": (
        "duo",
        DUO,
        {"instances/reasoner/experts_on_cpu": "50%"},
        "LH174",
        "once for every drafted token.*measure it",
    ),
    "a card too full": (
        "one",
        {"35b": qwen_35b("Q4_K", "Q5_K")},
        {},
        "LH150",
        r"wants [\d,]+ MiB more of card `card` .*any one of these makes it fit: .*`experts_on_cpu: 3`",
    ),
    "two on one card": (
        "one",
        ONE,
        {"instances/second": {"engine": "main", "model": "35b", "on": ["card"], "context": 4096, "port": 9}},
        "LH150",
        r"beside `second` than there is|beside `chat` than there is",
    ),
    "RAM too full": (
        "one",
        ONE,
        {"host/ram": "8GB", "instances/chat/experts_on_cpu": "all"},
        "LH151",
        r"of RAM, [\d,]+ MiB more than the host can give; `chat` wants",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str, tmp_path: Path) -> None:
    rig, headers, changes, code, words = CASES[case]
    said = {finding.code: f"{finding.message}; {finding.help}" for finding in found(rig, headers, changes, tmp_path)}
    assert code in said
    assert re.search(words, said[code])


SIDECARS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a projector for vLLM": (
        {"engines/main/kind": "vllm", "instances/chat/draft": None, "models/35b/mmproj": "mmproj*"},
        "vLLM takes no vision projector.*`mmproj`.*leave `mmproj` out",
        "35b",
    ),
    "a model that drafts for vLLM": (
        {"engines/main/kind": "vllm", "instances/chat/draft": {"model": "s"}},
        "vLLM is told of no model that drafts.*--speculative-config",
        "s",
    ),
    "a head of its own for ik of April": (
        {"instances/chat/draft": {"mtp": 2, "model": "s"}, "engines/main/flags": "67268c8fd"},
        "takes no prediction head in files of its own.*newer commit",
        "s",
    ),
    "a projector for ik of April": (
        {
            "instances/chat/draft": {"model": "s"},
            "engines/main/flags": "67268c8fd",
            "models/35b/mmproj": "mmproj*",
        },
        "does not draft with a vision projector.*leave `draft` or `mmproj` out",
        "{",
    ),
}


@pytest.mark.parametrize("case", SIDECARS)
def test_what_an_engine_does_not_take_beside_a_model(case: str, tmp_path: Path) -> None:
    changes, words, at = SIDECARS[case]
    kind = {"engines/main/kind": "ik_llama.cpp"} | changes
    (finding,) = found("one", HEADLESS, {"models/s": {"hf": "a/s"}, **kind}, tmp_path)
    assert (finding.code, finding.severity) == ("LH176", "error")
    assert re.search(words, f"{finding.message}; {finding.help}")
    line = finding.place.file.read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    assert at == "{" or line[finding.place.column - 1 :].startswith(at)


@pytest.mark.parametrize("draft", [{"model": "s"}, {"mtp": 2, "model": "s"}])
@pytest.mark.parametrize("kind", ["llama.cpp", "ik_llama.cpp"])
def test_what_the_newest_engines_take_beside_a_model(draft: dict[str, Any], kind: str, tmp_path: Path) -> None:
    """Nor is the served model's own head asked for, where another file drafts."""
    flags = {"llama.cpp": "b11434", "ik_llama.cpp": "8337e4cd3"}[kind]
    changes = {
        "engines/main/kind": kind,
        "engines/main/flags": flags,
        "instances/chat/draft": draft,
        "models/35b/mmproj": "mmproj*",
        "models/s": {"hf": "a/s"},
    }
    assert found("one", {**HEADLESS, "s": gemma3()}, changes, tmp_path) == []


@pytest.mark.parametrize(
    ("rig", "headers"),
    [
        ("one", ONE),
        ("duo", DUO),
        ("six", {"122b": qwen_122b()}),
        ("budget", {"35b": qwen_35b("IQ2_XXS", mtp=False)}),
        ("wsl", {"35b": qwen_35b("Q4_K", "Q5_K")}),
    ],
)
def test_nothing_is_said_of_the_examples(rig: str, headers: Mapping[str, Header], tmp_path: Path) -> None:
    assert found(rig, headers, {}, tmp_path) == []


def test_a_few_layers_in_ram_are_nothing_to_speak_of(tmp_path: Path) -> None:
    assert found("duo", DUO, {"instances/reasoner/experts_on_cpu": 3}, tmp_path) == []


def test_a_rig_that_is_not_locked_is_passed_over(tmp_path: Path) -> None:
    assert found("one", {}, {"instances/chat/context": 400_000}, tmp_path) == []
