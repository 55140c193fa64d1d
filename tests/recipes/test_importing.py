"""The law of an import: the rendered server has what the file has, or a line names the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from llamaherd.engines.flags.effective import effective_options
from llamaherd.engines.flags.keys import keys_from_arguments
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.inventory.schema.key_flags import KEY_FLAGS
from llamaherd.lock import Lock, LockedFile, LockedModel
from llamaherd.memory.facts import RigFacts
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.plan import ServerSpec
from llamaherd.recipes import understand
from llamaherd.recipes.importing import differences, gpus_on_rig, keys_on_rig, rendered_server
from llamaherd.recipes.recipe import VISIBLE
from llamaherd.recipes.servers import API_KEY_VARIABLES
from llamaherd.recipes.suggestions import Offer, offers_of
from llamaherd.text.numbers import parse_duration
from tests.support import gguf_files
from tests.support.headers import header
from tests.support.ours import plan
from tests.support.rigs import COMMIT, DIGEST, SHA

DATA = Path(__file__).parents[1] / "data" / "recipes"
ENGINES: Mapping[str, Mapping[str, Any]] = {
    "llama.cpp": {
        "kind": "llama.cpp",
        "flags": "b11434",
        "source": {"git": "https://git.lan/llama.cpp", "commit": COMMIT},
    },
    "ik_llama.cpp": {
        "kind": "ik_llama.cpp",
        "flags": "8337e4cd3",
        "source": {"git": "https://git.lan/ik", "commit": COMMIT},
    },
    "vllm": {"kind": "vllm", "image": f"vllm/vllm-openai@sha256:{DIGEST}", "flags": "0.33.0"},
}
MODELS = ("main", "draft", "whole")


@cache
def lock() -> Lock:
    """A model with experts and a prediction head, a small one that drafts, and a folder for vLLM."""
    shapes = {"main": gguf_files.qwen(mtp=True), "draft": gguf_files.gemma3(), "whole": None}
    return Lock(
        models=tuple(
            LockedModel(
                repo=f"org/{name}",
                revision="main",
                files="*" if shape is None else "*.gguf",
                commit=COMMIT,
                endpoint="https://hub.lan",
                shards=(LockedFile(path=f"{name}.gguf", size=10**9, sha256=SHA),),
                header=header(shape) if shape else None,
            )
            for name, shape in shapes.items()
        )
    )


def offers() -> Iterator[tuple[str, Offer]]:
    """Every server that a fixture offers."""
    for file in sorted(each for each in DATA.rglob("*") if each.is_file()):
        for offer in offers_of(understand(file).servers):
            yield f"{file.name}:{offer.line}", offer


OFFERS = dict(offers())


def rig_of(keys: Mapping[str, Any]) -> Rig:
    """A rig with room for all, and an instance with these keys."""
    cards = {f"gpu{n}": {"model": "RTX 3090", "uuid": f"GPU-{n}", "memory": "900GB"} for n in range(1, 9)}
    return Rig.model_validate(
        {
            "rig": "duo",
            "connect": {"host": "duo.lan"},
            "host": {"os": "ubuntu-24.04", "cpu": {"cores": 32}, "ram": "2000GB"},
            "gpus": {"cuda": "13.0", "cards": cards},
            "engines": ENGINES,
            "models": {name: {"hf": f"org/{name}", "files": "*" if name == "whole" else "*.gguf"} for name in MODELS},
            "instances": {"imported": keys},
        },
        context={"folder": Path("/srv")},
    )


def imported(offer: Offer, **changes: Any) -> tuple[RigFacts, ServerSpec]:
    """The facts of a rig with an offer, and its planned server; `changes` replace keys of the instance."""
    cards = rig_of({"engine": "llama.cpp", "model": "main", "context": 4096, "port": 1}).gpus
    assert cards
    own: dict[str, Any] = {"engine": offer.server.kind, "model": "whole" if offer.server.kind == "vllm" else "main"}
    own["port"] = offer.keys.get("port", 8080)
    if isinstance(drafting := offer.keys.get("draft"), dict) and "model" in drafting:
        own["draft"] = {**drafting, "model": "draft"}
    known = locked_facts(rig_of({"context": 4096, **own, "draft": None}), lock()).instances["imported"].flags
    keys = {"context": 4096, **keys_on_rig(offer, cards.cards, known, own), **changes}
    rig = rig_of({key: value for key, value in keys.items() if value is not None})
    (server,) = (each.server for each in plan(rig, lock()).instances)
    return locked_facts(rig, lock()), server


def own_port(offer: Offer) -> int:
    return int(offer.keys.get("port", 8080))


def said(offer: Offer, facts: RigFacts) -> tuple[str, ...]:
    ours = rendered_server(facts, "imported")
    assert ours
    return differences(offer, ours)


def flat(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with those inside of others by their path."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        found |= {f"{key}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {key: value}
    return found


def spellings(key: str, kind: str) -> set[str]:
    """Every flag that carries a key, by the table."""
    rows = (row for row in KEY_FLAGS if row.key and (row.key == key or row.top == key.partition(".")[0]))
    return {flag for row in rows if (spelling := row.spelled.get(kind)) for flag in spelling.flags}


def test_there_are_enough_of_each_engine() -> None:
    kinds = [offer.server.kind for offer in OFFERS.values()]
    assert len(kinds) >= 40
    assert {*kinds} == {*ENGINES}


@pytest.mark.parametrize("name", OFFERS)
def test_what_is_compared_is_what_is_planned(name: str) -> None:
    """Only the paths of files differ, which the lock and the store decide on."""
    facts, server = imported(OFFERS[name])
    ours = rendered_server(facts, "imported")
    assert ours
    paths = ("--model", "--api-key-file", "--spec-draft-model", "--model-draft")

    def without_paths(words: tuple[str, ...]) -> list[str]:
        return [word for before, word in zip(("", *words), words, strict=False) if before not in paths]

    assert without_paths(ours.arguments) == without_paths(server.arguments)
    assert dict(ours.environment) == server.environment
    assert (ours.listen, ours.port) == (server.endpoint.listen, server.endpoint.port)
    assert ours.cpus == server.limits.cpus
    assert len(ours.gpus) == len(facts.rig.instances["imported"].on)


@pytest.mark.parametrize("name", OFFERS)
def test_a_server_has_what_the_file_has_or_a_line_says_what_differs(name: str) -> None:
    offer = OFFERS[name]
    facts, server = imported(offer)
    lines, kind = said(offer, facts), offer.server.kind
    text = "\n".join(lines)
    flags = facts.instances["imported"].flags
    assert flags
    theirs, ours = (keys_from_arguments(each, kind) for each in (offer.known.arguments, server.arguments))

    # Arguments with a key: the same value, or a line with a flag of the key.
    before, after = flat(theirs.keys), flat(ours.keys)
    for key in {*before, *after} - {"listen", "port", "experts_on_cpu"}:
        if key.startswith("api_key"):
            given = any(each.startswith("api_key") for each in before) or API_KEY_VARIABLES & {*offer.server.settings}
            assert given or "clients need the key" in text
        elif key == "idle.unload" and offer.server.unload_after:
            assert offer.keys["idle"] == {"unload": f"{offer.server.unload_after}s"}
            assert parse_duration(after[key]) == offer.server.unload_after
        elif before.get(key) != after.get(key):
            named = any(flag in text for flag in _written(flags, spellings(key, kind)))
            usual = key not in before and after[key] in ("f16", "auto", "layer", "on")
            assert named or usual, (key, before.get(key), after.get(key), lines)

    # Arguments without a key: they are there, or a line has them.
    mine = effective_options(flags, server.arguments, server.environment)
    for option in effective_options(flags, theirs.rest).said:
        there = [each for each in mine.every(option.flag.spellings[0]) if each.values == option.values]
        moved = {"--override-tensor", "--cpu-moe", "--n-cpu-moe"} & {*option.flag.spellings}
        assert there or moved or str(option) in text, (str(option), lines)

    # Experts: the same tensors by the patterns themselves, or a line.
    if "experts_on_cpu" in before and "tensors are elsewhere" not in text:
        assert _has_experts_moved(facts) or "not compared" in text

    # Address, port, GPUs, processors.
    published = offer.server.published
    port = published.host if published else str(offer.server.value("--port") or own_port(offer))
    assert port == str(server.endpoint.port) or port in text or not port.isdigit()
    assert offer.gpus in (None, len(gpus_on_rig(offer, facts.rig.gpus.cards if facts.rig.gpus else {})))
    assert offer.gpus is None or offer.gpus == len(facts.rig.instances["imported"].on) or "GPU" in text
    assert not offer.server.cpus or offer.server.cpus == server.limits.cpus or offer.server.cpus in text

    # Environment and mounts.
    for variable, word in offer.server.settings.items():
        if variable in API_KEY_VARIABLES or variable in (*VISIBLE, "CUDA_DEVICE_ORDER"):
            continue
        as_option = any(each.words[0].startswith(f"{variable}=") for each in mine.said)
        assert server.environment.get(variable) == str(word) or variable in text or as_option, (variable, lines)
    for source, target in offer.server.binds:
        of_model = PurePosixPath(offer.source).is_relative_to(target) or "/models" in target or ".cache" in target
        assert of_model or source in text


def _written(flags: Any, names: set[str]) -> set[str]:
    """All spellings of flags in one version."""
    found = (flags.find(name) for name in names)
    return {spelling for flag in found if flag for spelling in (*flag.spellings, *flag.negated)} | names


def _has_experts_moved(facts: RigFacts) -> bool:
    return facts.rig.instances["imported"].moves_experts


CHANGED: Mapping[str, Any] = {
    "context": 12288,
    "kv": {"k": "q5_0", "v": "q5_0"},
    "parallel": 7,
    "threads": 3,
    "gpu_layers": 5,
    "split": "row",
    "batch": 1024,
    "ubatch": 256,
    "warmup": False,
    "experts_on_cpu": 3,
    "sampling": {"temperature": 0.123},
    "cache_reuse": 999,
    "cpus": "0-2",
    "on": ["gpu1", "gpu2", "gpu3"],
    "port": 9999,
    "environment": {"GGML_CUDA_FORCE_MMQ": "1"},
    "extra_args": ["--timeout", "777"],
    "thinking": False,
    "idle": {"unload": "15m"},
}


@pytest.mark.parametrize("key", CHANGED)
def test_no_change_of_an_instance_goes_without_a_line(key: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("llama-server -m a.gguf -c 8192 -dev CUDA0,CUDA1 --port 8080\n", encoding="utf-8")
    (offer,) = offers_of(understand(tmp_path / "a.sh").servers)
    before, after = said(offer, imported(offer)[0]), said(offer, imported(offer, **{key: CHANGED[key]})[0])
    assert {*after} - {*before}, key


SAME = "llama-server -m a.gguf -c 8192 --alias main -ngl 99 -np 2 -t 8 --metrics -dev CUDA0 --port 8081"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("", []),
        (" --fit on", ["`--fit on` is not used: the plan places the model"]),
        (" --fit-target 512", ["`--fit-target 512` is not used: the plan places the model"]),
        (" -ctk q8_0 -ctv q8_0 -fa 1", []),
        (" --no-mmap", []),
        (" --temp 0.70 --seed 3", []),
        (" -ncmoe 10", []),
        (" --cpu-moe", ["3 tensors are elsewhere than by `--cpu-moe`, such as `blk.40."]),  # the prediction head's
        (" -ot exps=CPU", ["3 tensors are elsewhere than by `-ot exps=CPU`, such as `blk.40."]),
        (" -ot '\\.(2|5)\\.ffn_.*_exps=CPU'", []),
        (" --api-prefix /v1", ["`--api-prefix /v1` is not used: llamaherd requests its health without a prefix"]),
        (" --ssl-key-file a --ssl-cert-file b", ["`--ssl-key-file a` is not used", "`--ssl-cert-file b` is not used"]),
        (" --host /run/a.sock", ["it listens on 127.0.0.1: the file has /run/a.sock"]),
        (" $MORE", ["`$MORE` is not carried over: its value is set elsewhere"]),
        (" -md s.gguf --spec-draft-n-max 8", ["`--spec-draft-model draft` in place of `-md s.gguf`"]),
    ],
)
def test_a_line_names_what_differs_and_why(words: str, lines: list[str], tmp_path: Path) -> None:
    """A variable for the pages that may use a server is set for each that has no key."""
    (tmp_path / "a.sh").write_text(f"{SAME}{words}\n", encoding="utf-8")
    (offer,) = offers_of(understand(tmp_path / "a.sh").servers)
    found = [line for line in said(offer, imported(offer)[0]) if "CORS" not in line]
    assert [any(each.startswith(line) for each in found) for line in lines] == [True] * len(lines), found
    assert lines or not found, found


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("", "", "1` is set: llama.cpp would have 4 slots"),
        ("taskset -c 0,2-3 ", "", ""),
        ("taskset -c 0-8:2 ", "", "the processors `0-8:2` are not set"),
        ("nice -n 5 ", "", "`nice -n 5` is not carried over"),
        ("FOO=1 ", "", "variables of the file are not set: `FOO`"),
        ("CUDA_VISIBLE_DEVICES=1 ", "", ""),
        ("CUDA_VISIBLE_DEVICES= ", "", ""),
    ],
)
def test_what_is_around_a_command_is_compared(before: str, after: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"{before}llama-server -m a.gguf -c 8192{after}\n", encoding="utf-8")
    (offer,) = offers_of(understand(tmp_path / "a.sh").servers)
    facts, _ = imported(offer)
    assert line in "\n".join(said(offer, facts))
    if "CUDA" in before:
        assert facts.rig.instances["imported"].on == (("gpu2",) if "=1" in before else ())


def test_keys_of_an_offer_are_those_of_an_instance() -> None:
    assert all({*offer.keys} <= {*Instance.model_fields} for offer in OFFERS.values())
