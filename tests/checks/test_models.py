"""What the headers of models say against what instances want: heads, contexts, experts, and what GPUs and RAM hold."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.context import RigCheck, RigContext
from llamaherd.checks.models import (
    check_drafting_gain,
    check_experts,
    check_loadable,
    check_prediction_heads,
    check_sidecar_models,
    check_training_context,
    check_vocabularies,
)
from llamaherd.checks.placement import check_memory, check_slots
from llamaherd.diagnostics.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory import fit
from llamaherd.memory.estimate import Memory, estimate
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.fit import Room, changes, fit_in
from llamaherd.memory.placement import Placement
from llamaherd.pipeline.fleet_files import examine_fleet
from tests.support import gguf_files
from tests.support.headers import gemma3, qwen_35b, qwen_122b
from tests.support.rigs import ROOT, changed

EXAMPLES = ROOT / "inventory" / "examples"


def found(rig: str, headers: Mapping[str, Header], changes: Mapping[str, Any], folder: Path) -> list[Finding]:
    """What the checks say of an example with these changes."""
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(changed(read_yaml(EXAMPLES / f"{rig}.yaml").data, changes)), encoding="utf-8")
    document = read_yaml(file)
    subject = RigContext(rig_facts(Rig.model_validate(document.data, context={"folder": folder}), headers), document)
    checks: tuple[RigCheck, ...] = (
        check_prediction_heads,
        check_training_context,
        check_experts,
        check_loadable,
        check_sidecar_models,
        check_drafting_gain,
        check_slots,
        check_memory,
    )
    return [finding for check in checks for finding in check(subject)]


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
        "in 40 layers, and 41 are requested.*`experts_on_cpu: 40`",
    ),
    "ik of April": ("duo", DUO, {"engines/ik/flags": "67268c8fd"}, "LH173", "cannot load `122b`.*newer commit"),
    "llama.cpp drafts through the RAM": (
        "duo",
        DUO,
        {"instances/reasoner/experts_on_cpu": "50%"},
        "LH174",
        "once for every drafted token.*measure it",
    ),
    "a GPU too full": (
        "one",
        {"35b": qwen_35b("Q4_K", "Q5_K")},
        {},
        "LH150",
        r"needs [\d,]+ MiB more of GPU `card` .*any one of these makes it fit: .*`experts_on_cpu: 3`",
    ),
    "two on one GPU": (
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
        r"of RAM, [\d,]+ MiB more than the host can give; `chat` needs",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str, tmp_path: Path) -> None:
    rig, headers, changes, code, words = CASES[case]
    said = {finding.code: f"{finding.message}; {finding.help}" for finding in found(rig, headers, changes, tmp_path)}
    assert code in said
    assert re.search(words, said[code])


TOKENS: dict[str, Any] = {"tokenizer_model": "gpt2", "tokenizer_add_bos_token": True, "tokenizer_bos_token_id": 1}


@pytest.mark.parametrize(
    ("served", "drafts", "words"),
    [
        (TOKENS, TOKENS, None),
        (TOKENS, {}, None),
        (TOKENS, TOKENS | {"tokenizer_model": "llama"}, "two kinds, `llama` and `gpt2`"),
        (TOKENS, TOKENS | {"tokenizer_add_bos_token": False}, "do not both put a token before"),
        (TOKENS, TOKENS | {"tokenizer_bos_token_id": 2}, "different tokens, 2 and 1"),
        (
            TOKENS | {"tokenizer_add_bos_token": False},
            TOKENS | {"tokenizer_add_bos_token": False, "tokenizer_bos_token_id": 2},
            None,
        ),
    ],
)
@pytest.mark.parametrize("more", [0, 128, 129])
def test_a_model_that_drafts_has_the_same_tokens(
    served: dict[str, Any], drafts: dict[str, Any], words: str | None, more: int, tmp_path: Path
) -> None:
    file = tmp_path / "rig.yaml"
    changes = {"instances/chat/draft": {"model": "s"}, "models/s": {"hf": "a/s"}}
    file.write_text(yaml.safe_dump(changed(read_yaml(EXAMPLES / "one.yaml").data, changes)), encoding="utf-8")
    large, small = HEADLESS["35b"], gemma3()
    headers = {
        "35b": large.model_copy(update={"vocabulary": 1000, "parameters": {**large.parameters, **served}}),
        "s": small.model_copy(update={"vocabulary": 1000 - more, "parameters": {**small.parameters, **drafts}}),
    }
    document = read_yaml(file)
    subject = RigContext(rig_facts(Rig.model_validate(document.data, context={"folder": tmp_path}), headers), document)
    said = [f"{finding.code} {finding.message}" for finding in check_vocabularies(subject)]
    if more > 128:
        assert len(said) == 1
        assert f"LH223 `s` has {1000 - more} tokens and `35b` 1000" in said[0]
    else:
        assert len(said) == (1 if words else 0)
        assert words is None or (said[0].startswith("LH223") and words in said[0])


SIDECARS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a projector for vLLM": (
        {"engines/main/kind": "vllm", "instances/chat/draft": None, "models/35b/mmproj": "mmproj*"},
        "vLLM takes no vision projector.*`mmproj`.*leave `mmproj` out",
        "35b",
    ),
    "a model that drafts for vLLM": (
        {"engines/main/kind": "vllm", "instances/chat/draft": {"model": "s"}},
        "llamaherd sets no draft model for vLLM.*--speculative-config",
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


def examined(path: Path, changes: Mapping[str, Any], folder: Path) -> list[Finding]:
    """All that `herd check` says of the example `one` with a file of this machine as its model."""
    rig = changed(read_yaml(EXAMPLES / "one.yaml").data, {"models/35b": {"file": str(path), "sha256": "0" * 63 + "1"}})
    (folder / "one.yaml").write_text(yaml.safe_dump(changed(rig, changes)), encoding="utf-8")
    return list(examine_fleet(folder / "one.yaml")[1])


def test_a_file_of_this_machine_is_sized_before_it_is_locked(tmp_path: Path) -> None:
    """Its header is read where it lies; a context that no GPU holds is refused at once."""
    (path,) = gguf_files.write(gguf_files.llama(), tmp_path / "model.gguf")
    huge = {"instances/chat/context": 100_000_000}
    assert {"LH150", "LH171"} <= {finding.code for finding in examined(path, huge, tmp_path)}
    path.write_bytes(b"GGUF and no more")
    (unread,) = [finding for finding in examined(path, {}, tmp_path) if finding.code == "LH162"]
    assert "ends inside its header" in unread.message


@pytest.mark.parametrize("kind", ["fifo", "folder", "absent"])
def test_what_is_no_file_holds_nothing_up(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    codes = {finding.code for finding in examined(path, {}, tmp_path)}
    assert ("LH162" in codes) is (kind != "absent")
    assert "LH150" not in codes


@pytest.mark.parametrize(("spare", "severity"), [(-1, "error"), (0, "warning"), ((1 << 30) - 1, "warning")])
def test_what_cannot_fit_into_ram_is_an_error(spare: int, severity: str, tmp_path: Path) -> None:
    """More than there is can never be; less than the system wants beside it may go well."""
    large = {"host/ram": 1 << 40, "instances/chat/experts_on_cpu": "all"}
    made = Rig.model_validate(changed(read_yaml(EXAMPLES / "one.yaml").data, large), context={"folder": tmp_path})
    wanted = sum(each.ram for each in rig_facts(made, ONE).sized.values())
    said = [each for each in found("one", ONE, large | {"host/ram": wanted + spare}, tmp_path) if each.code == "LH151"]
    assert [each.severity for each in said] == [severity]


@pytest.mark.parametrize(("count", "refused"), [(256, False), (257, True)])
def test_llama_cpp_ends_with_more_slots_than_it_has_bits_for(count: int, refused: bool, tmp_path: Path) -> None:
    said = {each.code for each in found("one", ONE, {"instances/chat/parallel": count}, tmp_path)}
    assert ("LH161" in said) is refused


def test_many_slots_are_searched_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try is an estimate; halving needs eight for 256 slots."""
    header, placement = qwen_35b("Q4_K"), Placement(context=262_144, parallel=256, devices=1, ubatch=64)
    tried: list[Placement] = []

    def counted(header: Header, placement: Placement) -> Memory:
        tried.append(placement)
        return estimate(header, placement)

    monkeypatch.setattr(fit, "estimate", counted)
    (way,) = [each for each in changes(header, placement, Room((28 << 30,))) if each.kind == "parallel"]
    assert 1 < way.placement.parallel < 255
    assert len(tried) < 150
    more = replace(way.placement, parallel=way.placement.parallel + 1)
    assert not fit_in(header, more, Room((28 << 30,))).fits
