"""What a host says of itself: an answer captured from the real box, and lines that no host can have printed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.host.protocol import CutOffError, UnexpectedLineError, marked_lines
from llamaherd.host.state import FileState, HostState
from llamaherd.layout import OURS
from llamaherd.onhost.document import encode
from llamaherd.onhost.files import Disk
from llamaherd.onhost.servers import ContainerState, Holder, ServingState, UnitState
from llamaherd.onhost.verification import Inspected
from llamaherd.pipeline.inspection import state_of
from llamaherd.role.role import Role
from roles.base import BaseState
from roles.base.onhost import FolderFound, UserFound
from roles.engines import BuiltState
from roles.models import StoreState
from roles.serve.state import ServeState
from tests.support.host_lines import NO_DISK
from tests.support.ours import inspect_scripts, inspect_text, parse_state
from tests.support.rigs import box, converged, cpu_rig, gpu_rig, planned
from tests.support.states import host_with

CAPTURED = (Path(__file__).parents[1] / "data" / "box.observed.txt").read_text(encoding="utf-8").splitlines()


def test_a_real_answer_is_read_whole() -> None:
    seen = parse_state(CAPTURED)
    assert (seen.system.os, seen.system.arch, seen.system.systemd) == ("debian-13", "x86_64", True)
    assert set(BaseState.of(seen).folders) == set(OURS)
    assert BaseState.of(seen).folders["/etc/llamaherd/keys"] == FolderFound(0o711, "root")
    assert seen.system.free == ("/var/lib/llamaherd", 66136154112, "overlay")
    assert StoreState.of(seen).disk == Disk("/var/lib/llamaherd/models", 66136154112, "overlay", "overlay", True)
    assert seen.system.listening == {22, 8080, 8081, 37115}
    assert set(BaseState.of(seen).users) == {"llama", "llama-build", "llama-fetch", "llama-chat"}
    assert BaseState.of(seen).users["llama-chat"] == UserFound("/usr/sbin/nologin", ("llama-chat",))
    assert seen.system.packages >= {"cmake", "g++", "mmdebstrap"}
    assert seen.files["/etc/llamaherd/keys/chat"] == FileState(
        "400",
        ("992", "llama-chat"),
        1795309341.783528417,
        "27d2bcb37fdc772efa2e1f0e34f0d5f95b8cc5fef11cda03e03627e82fb80826",
    )
    assert seen.engines.builds == {"llama.cpp-66ca571ae125": "done"}
    assert BuiltState.of(seen).sources == {"b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"}
    folder = "/var/lib/llamaherd/models/local/041d6924ab124e1f"
    assert seen.models.verified[folder] == {
        "tiny-moe.gguf": (
            6512288,
            1795306246.915421754,
            "041d6924ab124e1fe5230ffc9bfec6c179fc320fc320da87d1e5a6e71b8e674f",
        )
    }
    assert seen.models.stored[folder]["tiny-moe.gguf"] == (6512288, 1795306246.915421754)
    assert seen.servers.units == {"llama-chat": UnitState("active", "enabled", False, "8f" * 16, "a3cb0e1ae986", 8080)}
    assert ServeState.of(seen).projects == {"drafter"}
    assert seen.servers.containers == {
        "llama-drafter": ContainerState(
            "running",
            "healthy",
            "d7" * 32,
            "46fafba1957b",
            8081,
            {"PidsLimit": "512", "RestartPolicy.Name": "unless-stopped"},
        )
    }
    assert seen.servers.images == {"llamaherd/engine:llama.cpp-66ca571ae125-a371b6"}


def shape(line: str) -> str:
    """A line without what differs from host to host and from one state of this repository to the next."""
    line = re.sub(r"^docker\tinfo\t\{.*\}$", "docker\tinfo\t<json>", line)
    line = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", line)
    line = re.sub(r"\b[0-9a-f]{32}\b", "<run>", line)
    line = re.sub(r"\b[0-9a-f]{16}\b", "<sha>", line)
    line = re.sub(r"\b[0-9a-f]{12}\b", "<hash>", line)
    line = re.sub(r"-[0-9a-f]{6}$", "-<hash>", line)
    line = re.sub(r"[\d-]+T[\d:]+\.\d{9}Z", "<time>", line)
    return re.sub(r"\d+\.\d+|\b\d{3,}\b", "<n>", line)


def test_hosts_made_up_in_tests_answer_in_the_words_of_a_real_one() -> None:
    # What listens, and what lies under the system, differs from machine to machine.
    made_up = {shape(line) for line in converged(box(), {"chat": "key"}) if not line.startswith(("listens", "machine"))}
    real = {shape(line) for line in CAPTURED if not line.startswith(("listens", "machine"))}
    assert made_up == real


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("package\tcmake\tconfig-files", HostState()),
        (
            "unit\tllama-a\tinactive\tdisabled\tyes\t\t\t\t8080",
            host_with(units={"llama-a": UnitState("inactive", "disabled", True, "", "", None, 8080)}),
        ),
        (
            "container\t/llama-a\tcreated\t\tff\tabc\t\tPidsLimit=null NanoCpus=0 CpusetCpus=",
            host_with(containers={"llama-a": ContainerState("created", "", "ff", "abc")}),
        ),
        (
            "serving\tllama-a\tchanged\tkey\t/k",
            host_with(serving={"llama-a": ServingState(changed=("/k",))}),
        ),
        (
            "serving\tllama-a\tforeign\t/a b\nserving\tllama-a\tforeign\t/c\nserving\tllama-a\thangs\tit does",
            host_with(serving={"llama-a": ServingState(foreign=("/a b", "/c"), hangs="it does")}),
        ),
        (
            "serving\tllama-a\tuntried\tabc\nserving\tllama-a\tuntried\tdef",
            host_with(serving={"llama-a": ServingState(untried=("abc", "def"))}),
        ),
        ("holder\t8080\t7\ta b\t", host_with(holders={8080: Holder(7, "a b", "")})),
        ("closed\t/a b", host_with(closed=("/a b",))),
        ("incoming\tff.part\t1000000\t24", host_with(disk=NO_DISK, incoming={"ff.part": 12288})),
        ("kept\t/models/a/b\t7", host_with(disk=NO_DISK, kept={"/models/a/b": 7})),
        ("fetch\t0123456789ab", host_with(disk=NO_DISK, fetch="0123456789ab")),
        ("build\tllama.cpp-0\tbuilding", host_with(builds={"llama.cpp-0": "building"})),
        (
            "file\t/a b\t644 0 root 1.5\nsum\tff\t/a b",
            HostState(files={"/a b": FileState("644", ("0", "root"), 1.5, "ff")}),
        ),
    ],
    ids=[
        "removed package",
        "unit that never ran",
        "container that never ran",
        "another key since",
        "drop-ins",
        "untried",
        "holder",
        "closed",
        "part",
        "kept",
        "fetch",
        "building",
        "space",
    ],
)
def test_one_line(line: str, seen: HostState) -> None:
    found = parse_state(line.split("\n"))
    known = {kind: part for kind, part in found.parts.items() if part != kind()}
    assert replace(found, parts=known) == seen


@pytest.mark.parametrize(
    "line",
    ["", "Last login: yesterday"],
)
def test_a_line_that_was_not_asked_for(line: str) -> None:
    with pytest.raises(UnexpectedLineError, match="unexpected line"):
        parse_state(["os\tdebian-13", *line.split("\n")])


@pytest.mark.parametrize("before", [[], ["Welcome", ""], ["os\tanother", "@ end", "@ Begin"]])
@pytest.mark.parametrize("after", [[], [""], ["os\tlogout"]])
def test_what_a_login_shell_prints_is_no_answer(before: list[str], after: list[str]) -> None:
    said = ["@ begin", "os\tdebian-13", "@ end"]
    assert marked_lines([*before, *said, *after]) == ["os\tdebian-13"]


@pytest.mark.parametrize("lines", [[], ["Welcome"], ["@ begin", "os\tdebian-13"], ["os\tdebian-13", "@ end"]])
def test_an_answer_without_its_end_is_none(lines: list[str]) -> None:
    with pytest.raises(CutOffError, match="the output of the host ended early"):
        marked_lines(lines)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_question_marks_its_answer_whatever_stands_in_the_line(shell: str) -> None:
    noise = "printf 'no end of this line'\n"
    role = Role("role", "", inspect=lambda _: "say os a")
    asked = noise + inspect_scripts(planned(cpu_rig()), [role])["role"]
    done = subprocess.run([shell, "-s"], input=asked, capture_output=True, text=True, check=True)
    assert marked_lines(done.stdout.splitlines()) == ["os\ta"]


def test_a_script_that_does_not_reach_its_end_is_no_inspection() -> None:
    role = Role("role", "", inspect=lambda _: "say os a; exit 0", parse=lambda _: ())
    script = inspect_scripts(planned(cpu_rig()), [role])["role"]
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    with pytest.raises(CutOffError):
        state_of(encode(Inspected(lines={"role": tuple(done.stdout.splitlines())})), [role])


@given(st.lists(st.text()))
def test_nonsense_is_a_line_that_was_not_asked_for_and_nothing_else(lines: list[str]) -> None:
    try:
        parse_state(lines)
    except UnexpectedLineError:
        return


def test_the_question_asks_for_all_that_a_plan_names() -> None:
    for plan in (planned(cpu_rig()), planned(gpu_rig())):
        asked = inspect_text(plan)
        named = [
            *plan.packages,
            *(file.path for file in plan.files),
            *(instance.file.path for instance in plan.instances),
            *(instance.key_file for instance in plan.instances if instance.key_file),
            *(build.id for build in plan.builds),
            *(model.folder for model in plan.models),
        ]
        assert [name for name in named if name not in asked] == []
