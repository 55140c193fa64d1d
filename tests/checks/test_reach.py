"""What is said of servers without a key, by what can reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.checks.context import RigContext
from llamaherd.checks.serving import check_routed_access, check_web_access
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support.rigs import DIGEST, GONE, changed, cpu_rig, gpu_rig

KEY = {"env": "K"}
CHAT, DRAFTER = "instances/chat/", "instances/drafter/"
FORK = {"engines/main/kind": "ik_llama.cpp", DRAFTER + "draft": GONE}
OLD = {"engines/main/flags": "b9592", "engines/main/source/version": GONE}
ORIGINS = "--cors-origins"

CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "it can be told which pages may": ({CHAT + "api_key": GONE}, []),
    "all have keys": ({**FORK, DRAFTER + "api_key": KEY}, []),
    "the fork cannot be told": (FORK, [("LH078", "drafter")]),
    "nor can an old version": (OLD, [("LH078", "drafter")]),
    "it is told all pages": ({DRAFTER + "extra_args": [ORIGINS, "*"]}, [("LH078", "drafter")]),
    "by its other spelling": ({DRAFTER + "extra_args": [f"{ORIGINS}=*"]}, [("LH078", "drafter")]),
    "it is told all pages by a variable": (
        {DRAFTER + "environment": {"LLAMA_ARG_CORS_ORIGINS": "*"}},
        [("LH078", "drafter")],
    ),
    "the argument counts, not the variable": (
        {DRAFTER + "environment": {"LLAMA_ARG_CORS_ORIGINS": "*"}, DRAFTER + "extra_args": [ORIGINS, "localhost"]},
        [],
    ),
    "the last one counts": ({DRAFTER + "extra_args": [ORIGINS, "*", ORIGINS, "https://chat.lan"]}, []),
    "it is told one page": ({DRAFTER + "extra_args": [ORIGINS, "https://chat.lan"]}, []),
    "beyond loopback another finding speaks": ({DRAFTER + "listen": "0.0.0.0"}, []),
}


def said(declared: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Code of every finding, and the instance that it points at."""
    file = folder / "rig.yaml"
    file.write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
    document = read_yaml(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    subject = RigContext(rig_facts(Rig.model_validate(document.data, context={"folder": folder}), {}), document)
    return [
        (each.code, lines[each.place.line - 1].strip(" :"))
        for each in (*check_routed_access(subject), *check_web_access(subject))
    ]


@pytest.mark.parametrize("case", CASES)
def test_who_may_reach_a_server_without_a_key(case: str, tmp_path: Path) -> None:
    changes, expected = CASES[case]
    assert said(changed(cpu_rig(), changes), tmp_path) == expected


@pytest.mark.parametrize(("key", "expected"), [(None, [("LH079", "v")]), (KEY, [])], ids=["keyless", "keyed"])
def test_vllm_in_its_own_network(key: object, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    vllm = {"engine": "v", "model": "35b", "on": ["new"], "context": 8192, "port": 8009, "backend": "compose"}
    changes = {
        "engines/v": {"kind": "vllm", "image": f"vllm/vllm-openai@sha256:{DIGEST}"},
        "instances": {"v": {**vllm, "api_key": key}},
    }
    assert said(changed(gpu_rig(), changes), tmp_path) == expected


def test_every_server_is_spoken_of(tmp_path: Path) -> None:
    assert said(changed(cpu_rig(), {**FORK, CHAT + "api_key": GONE}), tmp_path) == [
        ("LH078", "chat"),
        ("LH078", "drafter"),
    ]


@pytest.mark.parametrize(
    ("changes", "way_out"),
    [
        (FORK, "or serve it with llama.cpp from b10108 on"),
        ({DRAFTER + "extra_args": [ORIGINS, "*"]}, "or take `--cors-origins` out"),
        ({DRAFTER + "environment": {"LLAMA_ARG_CORS_ORIGINS": "*"}}, "or take `LLAMA_ARG_CORS_ORIGINS` out"),
    ],
)
def test_the_way_out_is_one(changes: dict[str, Any], way_out: str, tmp_path: Path) -> None:
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump(changed(cpu_rig(), changes), sort_keys=False), encoding="utf-8")
    document = read_yaml(file)
    (finding,) = check_web_access(
        RigContext(rig_facts(Rig.model_validate(document.data, context={"folder": tmp_path}), {}), document)
    )
    assert way_out in finding.help
