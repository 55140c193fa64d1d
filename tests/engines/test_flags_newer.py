"""Versions that no catalogue is of: newer than all of them, or between two; and releases among builds."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from llamaherd.engines import TRAITS, flags_of, tagged_version, version_of
from llamaherd.engines.flags import Catalogue, catalogue, catalogues, check_arguments, check_environment, check_options
from llamaherd.engines.flags.conflicts import find_conflicts
from llamaherd.engines.flags.effective import effective_options
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockedImage, LockedRef
from llamaherd.lock.apply import pinned
from llamaherd.recipes import examine
from llamaherd.recipes.recipe import recipe_version
from llamaherd.reference import releases
from llamaherd.reference.releases import BAD_BUILDS, bad_builds
from llamaherd.reference.toolchains import BAD_TOOLKITS
from tests.support.rigs import changed, cpu_rig

NEWEST = catalogues("llama.cpp")[-1]
NEWER = ("b11435", "b12359", "b99999", "v0.7.0", "v0.9.0", "v1.0.0", "1.0", "v1.0.1", "v2.3")


def asked(version: str) -> Catalogue:
    found = catalogue("llama.cpp", version)
    assert found is not None
    return found


def gravities(known: Catalogue, *words: str) -> list[tuple[str, str]]:
    other = [each for kind in TRAITS for each in catalogues(kind) if each.version != known.version]
    return [(problem.rule.code, problem.severity) for problem in check_arguments(known, words, other)]


def test_the_table_of_releases_ascends_on_both_sides() -> None:
    assert all(one < other for one, other in pairwise(releases.BUILDS.items()))
    assert all(one < other for one, other in pairwise(releases.BUILDS.values()))


def test_builds_and_releases_are_one_order() -> None:
    order = ["b9093", "v0.1.2", "b10486", "v0.2.0", "v0.5.0", "v0.6.0", "b11430", "v0.7.0", "v0.8", "v0.9.0", "b12111"]
    order += ["v1.0.0", "b12360", "v1.0.1", "v1.1"]
    places = [releases.release_order(version) for version in order if version != "b12360"]
    assert None not in places
    assert places == sorted(places, key=lambda place: place or ())
    assert (
        releases.release_order("v1.0.0")
        == releases.release_order("b12359")
        == releases.release_order("1.0")
        == (12359,)
    )


@pytest.mark.parametrize(
    "text", ["", "v", "b", "v1", "latest", "v1.0.0-rc1", "0.6.0-dev", "bb1", "v1.0.0.0", "²", "b1²"]
)
def test_what_is_neither_has_no_place(text: str) -> None:
    assert releases.release_order(text) is None
    assert not releases.is_release(text)


@pytest.mark.parametrize("kind", TRAITS)
@pytest.mark.parametrize("text", ["9" * 5000, "b" + "9" * 5000, "1." + "0" * 5000, "9" * 5000 + "-01-01"])
def test_a_version_with_thousands_of_digits_has_no_catalogue(kind: str, text: str) -> None:
    assert catalogue(kind, text) is None


@pytest.mark.parametrize("version", NEWER)
def test_what_a_newer_version_may_have_is_a_note(version: str) -> None:
    known = asked(version)
    assert (known.version, known.outdated) == (NEWEST.version, True)
    assert gravities(known, "--moe-cache-mib", "2048") == [("LH100", "note")]
    assert gravities(known, "--brand-new", "a", "b", "--metrics") == [("LH100", "note")]
    assert gravities(known, "--brand-new=5") == [("LH108", "error")]
    assert gravities(known, "--cache-type-k", "f8_e4m3") == [("LH106", "note")]
    assert gravities(known, "--threads", "auto") == [("LH105", "warning")]
    assert gravities(known, "-rtr") == [("LH102", "warning")]
    (problem,) = check_arguments(known, ["--brand-new=5"])
    assert problem.replacement == ("--brand-new", "5")


@pytest.mark.parametrize("version", NEWER)
def test_what_a_newer_version_lost_before_is_an_error(version: str) -> None:
    assert gravities(asked(version), "--no-mmap") == [("LH101", "error")]
    assert gravities(asked(version), "--draft-max", "2") == [("LH101", "error")]


@pytest.mark.parametrize("version", NEWER)
def test_a_slip_is_a_question_still(version: str) -> None:
    (problem,) = check_arguments(asked(version), ["--ctx-checkpionts", "3"])
    assert (problem.severity, problem.help) == ("note", "did you mean `--ctx-checkpoints`?")


@pytest.mark.parametrize("version", ["b9093", "b10878", "b11434"])
def test_what_a_known_version_lacks_is_an_error(version: str) -> None:
    assert gravities(asked(version), "--moe-cache-mib", "2048") == [("LH100", "error")]
    assert gravities(asked(version), "--cache-type-k", "f8_e4m3") == [("LH106", "error")]


@pytest.mark.parametrize(("before", "after"), list(pairwise(catalogues("llama.cpp"))))
def test_what_comes_between_two_may_be_there(before: Catalogue, after: Catalogue) -> None:
    """Of each flag that the later one alone has: no error between the two. What neither has stays one."""
    between = asked(f"b{int(before.version[1:]) + 1}")
    assert (between.version, between.following, between.outdated) == (before.version, after, False)
    new = {flag.spellings[-1] for flag in after.flags.values() if not flag.removed} - set(before.flags)
    for spelling in new:
        found = gravities(between, spelling, *("1" for _ in after.flags[spelling].values))
        assert [severity for code, severity in found if code in ("LH100", "LH101")] in (["warning"], []), spelling
    assert gravities(between, "--brand-new", "1") == [("LH100", "error")]


def test_variables_and_options_of_newer_versions() -> None:
    newer = asked("b12359")
    environment = {
        "LLAMA_ARG_MOE_CACHE_MIB": "1",
        "GGML_CUDA_NEW": "1",
        "LLAMA_ARG_CACHE_TYPE_K": "f8",
        "LLAMA_ARG_MMAP": "1",
    }
    assert [problem.severity for problem in check_environment(newer, environment)] == [
        "note",
        "note",
        "note",
        "warning",
    ]
    assert [problem.severity for problem in check_environment(NEWEST, environment)][:2] == ["warning", "warning"]
    options = {"GGML_CUDA_NEW": "ON", "LLAMA_CUBLAS": "ON", "GGML_CUDA_FA_QUANTS": "f8-f8"}
    found = [problem.severity for problem in check_options("llama.cpp", options, newer="b12359")]
    assert found == ["note", "error", "note"]
    assert [problem.severity for problem in check_options("llama.cpp", options)] == ["error", "error", "error"]


@pytest.mark.parametrize(
    ("kind", "image", "version"),
    [
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp:server-cuda-b12359", "b12359"),
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp:server-cuda13-b11434", "b11434"),
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp:v1.0.0", "v1.0.0"),
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp:server-cuda-v1.0.0@sha256:" + "0" * 64, "v1.0.0"),
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp:server-cuda", None),
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp@sha256:" + "0" * 64, None),
        ("llama.cpp", "ghcr.io/somebody/llama.cpp:v1.0.0", None),
        ("ik_llama.cpp", "ghcr.io/ikawrakow/ik-llama-cpp:cu13-server", None),
        ("vllm", "vllm/vllm-openai:v0.35.0", "v0.35.0"),
        ("vllm", "vllm/vllm-openai:v0.35.0-cu129", "v0.35.0"),
        ("vllm", "vllm/vllm-openai:nightly", None),
    ],
)
def test_the_tag_of_an_official_image_names_its_version(kind: str, image: str, version: str | None) -> None:
    assert tagged_version(kind, image) == version


@pytest.mark.parametrize("ref", ["v1.0.0", "v0.7.0", "b12359"])
def test_a_locked_release_is_read_as_before(ref: str) -> None:
    """The lock has a commit in place of the name; which version it is stays known."""
    git = "https://git.lan/llama.cpp"
    rig = Rig.model_validate(
        changed(cpu_rig(), {"engines/main": {"kind": "llama.cpp", "source": {"git": git, "ref": ref}}})
    )
    lock = Lock(engines=(LockedRef(git=git, ref=ref, commit="1" * 40),))
    for engine in (rig.engines["main"], pinned(rig, lock).engines["main"]):
        known = flags_of(engine)
        assert known is not None
        assert (version_of(engine), known.requested, known.outdated) == (ref, ref, True)


def test_a_locked_image_is_read_as_before() -> None:
    tagged = "ghcr.io/ggml-org/llama.cpp:server-cuda-b12359"
    rig = Rig.model_validate(changed(cpu_rig(), {"engines/main": {"kind": "llama.cpp", "image": tagged}}))
    lock = Lock(images=(LockedImage(image=tagged, digest="sha256:" + "1" * 64),))
    assert version_of(rig.engines["main"]) == version_of(pinned(rig, lock).engines["main"]) == "b12359"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("git clone https://github.com/ggml-org/llama.cpp && cd llama.cpp && git checkout v1.0.0", "v1.0.0"),
        ("git clone --depth 1 -b v0.9.0 \\\n  https://github.com/ggml-org/llama.cpp", "v0.9.0"),
        ("git clone --branch=b12359 https://github.com/ggml-org/llama.cpp", "b12359"),
        ("docker run ghcr.io/ggml-org/llama.cpp:server-cuda-b12359 -m m.gguf", "b12359"),
        ("git clone -b v1.0.0 https://github.com/mostlygeek/llama-swap", ""),
        ("git clone https://github.com/ggml-org/llama.cpp\ngit clone -b v2.0.0 https://git.lan/other", ""),
        ("git checkout v1.0.0", ""),
    ],
)
def test_the_version_that_a_recipe_names(text: str, version: str) -> None:
    assert recipe_version(text) == version


@pytest.mark.parametrize("version", ["b12359", "v1.0.0"])
def test_recipes_of_newer_versions(version: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        f"#!/bin/sh\ngit clone -b {version} https://github.com/ggml-org/llama.cpp\n"
        "cmake -B build -DGGML_CUDA=ON -DGGML_CUDA_NEW=ON\n"
        "llama-server -m m.gguf --host 127.0.0.1 --moe-cache-mib 2048\n",
        encoding="utf-8",
    )
    assert {one.code: one.severity for one in examine(script) if one.severity == "error"} == {}
    assert {"LH100", "LH131"} <= {one.code for one in examine(script)}
    compose = tmp_path / "compose.yaml"
    compose.write_text(
        f"services:\n  llm:\n    image: ghcr.io/ggml-org/llama.cpp:server-cuda-{version}\n"
        "    command: -m /models/m.gguf --moe-cache-mib 2048\n",
        encoding="utf-8",
    )
    assert [one.severity for one in examine(compose) if one.code == "LH100"] == ["note"]


def test_recipes_that_name_no_version_or_a_known_one(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    for head in ("", "git clone -b b11434 https://github.com/ggml-org/llama.cpp\n"):
        script.write_text(f"#!/bin/sh\n{head}llama-server -m m.gguf --moe-cache-mib 2048\n", encoding="utf-8")
        assert [one.severity for one in examine(script) if one.code == "LH100"] == ["error"]


def test_vllm_too() -> None:
    known = catalogue("vllm", "v0.35.0")
    assert known is not None
    assert known.outdated
    assert gravities(known, "--brand-new", "1") == [("LH100", "note")]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("b11434", ("LH112", "warning")),
        ("b12346", ("LH112", "warning")),
        ("v0.9.0", ("LH112", "warning")),
        ("b12347", ("LH101", "error")),
        ("v1.0.0", ("LH101", "error")),
    ],
)
@pytest.mark.parametrize("name", ["--defrag-thold", "-dt", "--defrag_thold"])
def test_a_flag_that_went_after_the_newest_catalogue(name: str, version: str, expected: tuple[str, str]) -> None:
    assert gravities(asked(version), name, "0.1") == [expected]


@pytest.mark.parametrize(
    ("version", "bad"), [("b10740", False), ("b10741", True), ("b10748", True), ("b10749", False), ("b11434", False)]
)
def test_builds_that_do_not_start_with_a_head(version: str, bad: bool, tmp_path: Path) -> None:
    words = ["--spec-type", "ngram-mod,draft-mtp"]
    found = [clash.rule.code for clash in find_conflicts(effective_options(asked(version), words))]
    assert ("LH177" in found) is bad
    assert "LH177" not in [
        clash.rule.code for clash in find_conflicts(effective_options(asked(version), ["--spec-type", "ngram-mod"]))
    ]
    script = tmp_path / "run.sh"
    script.write_text(f"docker run ghcr.io/ggml-org/llama.cpp:server-cuda-{version} -m m.gguf --spec-type draft-mtp\n")
    assert ("LH177" in {one.code for one in examine(script)}) is bad


def test_rows_of_known_faults_are_in_order_and_dated() -> None:
    assert all(bad.first <= bad.last and "#" in bad.source for bad in BAD_BUILDS)
    assert all(bad.version < bad.mended and "#" in bad.source for bad in BAD_TOOLKITS)
    assert all(re.fullmatch(r"20\d\d-\d\d(-\d\d)?", bad.reported) for bad in (*BAD_BUILDS, *BAD_TOOLKITS))
    assert bad_builds("main") == ()
