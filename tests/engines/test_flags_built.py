"""The flags that a built engine lists itself: read from its `--help`, kept beside the lock, and checked against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.engines import flags_of
from llamaherd.engines.flags import Catalogue, catalogue, catalogues, check_arguments
from llamaherd.engines.flags.definitions import (
    MOST_FLAGS,
    SPELLINGS,
    catalogue_of_build,
    flags_as_mapping,
    flags_of_mapping,
    parse_help,
)
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockedRef
from llamaherd.lock.apply import pinned
from llamaherd.lock.local_files import BuiltEngine, keep_built, read_built, with_built
from llamaherd.pipeline.fleet_files import locked_facts, survey_fleet
from llamaherd.pipeline.plan import plan
from roles import ROLES
from roles.engines import BuiltState, inspection_input, keep, state_parts
from roles.engines.onhost import Found
from tests.support.rigs import changed, cpu_rig

NEWEST = catalogues("llama.cpp")[-1]
GIT = "https://git.lan/llama.cpp"
COMMIT = "1" * 40
HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use during generation (default: -1)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
                                        (env: LLAMA_ARG_FLASH_ATTN)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
-ot,   --override-tensor <tensor name pattern>=<buffer type>,...
-ctk,  --cache-type-k TYPE              KV cache data type for K
--control-vector-layer-range START END  layer range
--moe-cache-mib N                       a cache on the GPU for experts in RAM
--metrics                               endpoint
--jinja, --no-jinja                     templates
"""
BUILT = parse_help(HELP)


def as_help(known: Catalogue) -> str:
    """What such a version's `--help` looks like without descriptions."""
    flags = dict.fromkeys(flag for flag in known.flags.values() if not flag.removed)
    return "\n".join(", ".join((*flag.spellings, *flag.negated)) + " N" * len(flag.values) for flag in flags)


def test_what_help_lists() -> None:
    assert dict(BUILT) == {
        ("-h", "--help", "--usage"): 0,
        ("-t", "--threads"): 1,
        ("-fa", "--flash-attn"): 1,
        ("-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"): 0,
        ("-ot", "--override-tensor"): 1,
        ("-ctk", "--cache-type-k"): 1,
        ("--control-vector-layer-range",): 2,
        ("--moe-cache-mib",): 1,
        ("--metrics",): 0,
        ("--jinja", "--no-jinja"): 0,
    }
    assert flags_of_mapping(flags_as_mapping(BUILT)) == BUILT


@given(st.text(alphabet=st.characters(), max_size=400))
def test_whatever_a_host_reports_is_names_of_flags_or_nothing(text: str) -> None:
    for spellings, values in parse_help(f"--fine\n{text}\n-{text}\n--{text}"):
        assert SPELLINGS.fullmatch(" ".join(spellings))
        assert 0 <= values <= 4


def test_a_flood_is_bounded() -> None:
    assert len(parse_help("\n".join(f"--flag-{number}" for number in range(100_000)))) <= MOST_FLAGS
    assert parse_help("--" + "a" * 10_000_000) == ()


def test_a_catalogue_that_lists_itself_is_the_same() -> None:
    again = catalogue_of_build(NEWEST, NEWEST.version, parse_help(as_help(NEWEST)))
    for spelling, flag in NEWEST.flags.items():
        found = again.find(spelling)
        assert found is not None, spelling
        assert (found.values, found.removed) == (flag.values, flag.removed), spelling


def test_what_a_real_engine_lists_is_its_catalogue() -> None:
    """What the build script of b11434 has kept, by a catalogue that was taken out of its source."""
    text = (Path(__file__).parents[1] / "data/llama_server_help_b11434.txt").read_text(encoding="ascii")
    known = catalogue_of_build(NEWEST, NEWEST.version, parse_help(text))
    assert {name: (flag.values, flag.removed) for name, flag in known.flags.items()} == {
        name: (flag.values, flag.removed) for name, flag in NEWEST.flags.items()
    }
    assert len(text) < 8000


def test_what_it_lists_decides() -> None:
    """Its flags are all that there are; what they take may be more than is known."""
    before = catalogue("llama.cpp", "b12359")
    assert before is not None
    known = catalogue_of_build(before, "b12359", BUILT)

    def said(*words: str) -> list[tuple[str, str]]:
        return [
            (problem.rule.code, problem.severity) for problem in check_arguments(known, words, catalogues("llama.cpp"))
        ]

    assert said("--moe-cache-mib", "2048", "-t", "4", "--metrics") == []
    assert said("--cache-type-k", "f8_e4m3") == [("LH106", "note")]
    assert said("--brand-new", "1") == [("LH100", "error")]
    assert said("--defrag-thold", "0.1") == [("LH101", "error")]


def declared(folder: Path, *words: str) -> Rig:
    engine = {"kind": "llama.cpp", "source": {"git": GIT, "ref": "b12359"}}
    changes = {"engines/main": engine, "instances/chat/extra_args": list(words)}
    (folder / "rig.yaml").write_text(yaml.safe_dump(changed(cpu_rig(), changes)), encoding="utf-8")
    return Rig.model_validate(changed(cpu_rig(), changes))


LOCK = Lock(engines=(LockedRef(git=GIT, ref="b12359", commit=COMMIT),))


def test_a_build_is_asked_once_and_checks_know_it_before_they_connect(tmp_path: Path) -> None:
    rig = declared(tmp_path, "--brand-new", "1", "--moe-cache-mib", "2048")
    planned = plan(locked_facts(rig, LOCK), LOCK, ROLES)
    (build,) = planned.builds
    asked = inspection_input(planned)
    assert asked
    assert [(each.id, each.flags) for each in asked.builds] == [(build.id, True)]

    def found() -> list[tuple[str, str]]:
        findings = [one for one in survey_fleet(tmp_path, LOCK).findings if one.code == "LH100"]
        return [(one.severity, one.message.split()[0]) for one in findings]

    assert found() == [("note", "`--brand-new`"), ("note", "`--moe-cache-mib`")]
    full = as_help(NEWEST) + "\n--moe-cache-mib N\n"
    state = HostState.of(*state_parts(Found(flags={build.id: full})))
    assert "engines/" in keep(tmp_path, planned, state)
    assert keep(tmp_path, planned, state) == ""
    assert found() == [("error", "`--brand-new`")]
    assert (tmp_path / f"engines/{rig.rig}.json").stat().st_size < 20_000


def test_a_version_that_a_catalogue_is_of_is_not_asked() -> None:
    engine = {"kind": "llama.cpp", "source": {"git": GIT, "ref": "b11434"}}
    rig = Rig.model_validate(changed(cpu_rig(), {"engines/main": engine}))
    lock = Lock(engines=(LockedRef(git=GIT, ref="b11434", commit=COMMIT),))
    planned = plan(locked_facts(rig, lock), lock, ROLES)
    asked = inspection_input(planned)
    assert asked
    assert [each.flags for each in asked.builds] == [False]


def test_the_plan_is_that_of_the_nearest_version_where_the_build_has_its_flags(tmp_path: Path) -> None:
    rig = declared(tmp_path)
    before = plan(locked_facts(rig, LOCK), LOCK, ROLES)
    build = BuiltEngine(source=COMMIT, flags=flags_as_mapping(parse_help(as_help(NEWEST))))
    assert keep_built(tmp_path, rig.rig, {"llama.cpp-0": build}, frozenset({"llama.cpp-0"}))
    after = with_built(rig, LOCK, tmp_path)
    for engine in (after.engines["main"], pinned(after, LOCK).engines["main"]):
        known = flags_of(engine)
        assert known is not None
        assert known.listed
    assert plan(locked_facts(after, LOCK), LOCK, ROLES) == before


@pytest.mark.parametrize("text", ["", "%%%", "\u00e9", "A" * 200_000, "\0"])
def test_what_lists_no_flags(text: str) -> None:
    state = HostState.of(*state_parts(Found(flags={"x": text})))
    assert BuiltState.of(state).flags == {"x": ()}


def test_flags_beyond_the_bounds_are_left_out() -> None:
    state = HostState.of(*state_parts(Found(flags={"x": "".join(f"--flag-{number}\n" for number in range(100_000))})))
    assert len(BuiltState.of(state).flags["x"]) == MOST_FLAGS


def test_what_was_not_asked_is_not_kept(tmp_path: Path) -> None:
    """A host can report flags of its own builds alone, and for its own rig."""
    planned = plan(locked_facts(declared(tmp_path), LOCK), LOCK, ROLES)
    state = HostState.of(*state_parts(Found(flags=dict.fromkeys(("../../evil", "llama.cpp-0", "a" * 500), "--evil\n"))))
    assert BuiltState.of(state).flags
    assert keep(tmp_path, planned, state) == ""
    assert not (tmp_path / "engines").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"a": {"source": "x", "flags": {"--a": 0}}}',
        json.dumps({"a": {"source": COMMIT, "flags": {"--a; rm -rf /": 0}}}),
        json.dumps({"a": {"source": COMMIT, "flags": {"--a": True}}}),
        json.dumps({"a": {"source": COMMIT, "flags": {"--a": 99}}}),
        json.dumps({"a": {"source": COMMIT, "flags": {"--a": 0}, "more": 1}}),
        json.dumps({str(number): {"source": COMMIT, "flags": {"--a": 0}} for number in range(9)}),
        "[" * 100_000,
        "{" + " " * 300_000 + "}",
    ],
)
def test_a_damaged_file_is_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines/cpu.json").write_text(text, encoding="utf-8")
    assert read_built(tmp_path, "cpu") == {}


def test_builds_that_are_no_longer_planned_go(tmp_path: Path) -> None:
    build = BuiltEngine(source=COMMIT, flags={"--a": 0})
    assert keep_built(tmp_path, "cpu", {"one": build}, frozenset({"one"}))
    assert keep_built(tmp_path, "cpu", {"two": build}, frozenset({"two", "three"}))
    assert set(read_built(tmp_path, "cpu")) == {"two"}
    assert not keep_built(tmp_path, "cpu", {}, frozenset({"two"}))
    assert set(read_built(tmp_path, "cpu")) == {"two"}
