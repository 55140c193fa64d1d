"""Power's verbs on a played host: what holds GPUs is written, enabled and restarted, and given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llamaherd.layout import POWER_FANS, POWER_PROGRAM, POWER_RUN, POWER_TABLE, POWER_UNIT, UNITS
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput, find_verb
from roles.power.onhost import ApplyInput, apply, remove
from tests.support.hostile import PLAIN
from tests.support.played_host import File
from tests.support.service_host import ServiceHost, killed_everywhere

UNIT = f"{UNITS}/{POWER_UNIT}"
NAME = POWER_UNIT.removesuffix(".service")
HELD = Ended(0, f"card old is limited to 280 W\n{'x' * 400}\n")
SHOWS = Ended(0, "InvocationID=0123\n")


def file(path: object, mode: int = 0o644, text: str = "x\n") -> WrittenFile:
    """Return a file."""
    return WrittenFile(str(path), Secret(text), mode, "root")


GIVEN = ApplyInput(
    (file(POWER_FANS, 0o755), file(POWER_PROGRAM, 0o755), file(POWER_TABLE), file(UNIT, text="[Service]\n")),
    restart=True,
)


def host(**more: Any) -> ServiceHost:
    """Return a host whose journal contains what the unit has written."""
    ends = {"journalctl -q -o cat --no-pager -n 40 _SYSTEMD_INVOCATION_ID=0123": HELD, "systemctl show": SHOWS}
    return ServiceHost({}, ends={**ends, **more.pop("ends", {})}, **more)


def holding(**more: Any) -> ServiceHost:
    """Return a host whose GPUs are held."""
    made = host(**more)
    apply(GIVEN, made)
    made.files[f"{POWER_RUN}/GPU-3090"] = File("280 - on -\n")
    made.log.clear()
    made.done.clear()
    return made


def test_gpus_are_held_and_what_the_unit_writes_is_reported() -> None:
    each = host()
    document = parse_document(dump(GIVEN).encode())
    find_verb("power.apply").run(decode(ApplyInput, document), each)
    assert each.files[str(POWER_PROGRAM)] == File("x\n", 0o755)
    assert (each.units[NAME].state, each.enabled) == ("active", {NAME})
    assert each.index("write", UNIT) < each.index("daemon-reload") < each.index("enable") < each.index("restart")
    assert each.index("reset-failed") < each.index("restart") < each.index("--sync") < each.index("cat")
    assert each.log == ["card old is limited to 280 W", "x" * 300]


def test_files_alone_restart_nothing() -> None:
    each = holding()
    apply(replace(GIVEN, files=GIVEN.files[:1], restart=False), each)
    assert each.has_done("enable")
    assert not each.has_done("restart")
    assert each.log == []


def test_a_gpu_that_cannot_be_held_fails_and_the_unit_does_not_go_on_trying() -> None:
    each = host(ends={"systemctl restart": Ended(1, "", "Job failed\n")})
    with pytest.raises(
        FailedError, match=r"does not have its declared limits; llamaherd-gpu-power\.service reports why"
    ):
        apply(GIVEN, each)
    assert each.log[0] == "card old is limited to 280 W"
    assert each.index("stop", POWER_UNIT) > each.index("restart")


@pytest.mark.parametrize(
    ("more", "why"),
    [({"full": "/etc/llamaherd"}, "cannot write"), ({"ends": {"systemctl -q enable": Ended(1)}}, "cannot enable")],
    ids=["a full disk", "a masked unit"],
)
def test_what_cannot_be_written_or_enabled_restarts_nothing(more: dict[str, Any], why: str) -> None:
    each = host(**more)
    with pytest.raises(FailedError, match=why):
        apply(GIVEN, each)
    assert not each.has_done("restart")


def test_gpus_get_their_defaults_back_before_the_program_goes() -> None:
    each = holding(ends={str(POWER_PROGRAM): Ended(0, "card GPU-3090 has its default limit again, 350 W\n")})
    remove(NoInput(), each)
    released = each.index(str(POWER_PROGRAM), "release")
    assert released < each.index("remove", str(POWER_PROGRAM)) < each.index("remove", UNIT)
    assert {"disable", "--now"} < set(each.done[0])
    assert each.files == {}
    assert each.log == ["card GPU-3090 has its default limit again, 350 W"]


def test_gpus_that_do_not_go_back_keep_all_that_knows_of_them() -> None:
    each = holding(ends={str(POWER_PROGRAM): Ended(1, "", "GPU-3090 does not go back: Insufficient Permissions\n")})
    before = dict(each.files)
    with pytest.raises(FailedError, match="not all GPUs have their defaults again") as caught:
        remove(NoInput(), each)
    assert caught.value.log == ("GPU-3090 does not go back: Insufficient Permissions",)
    assert each.files == before


@pytest.mark.parametrize("lacks", ["the program", "its permission", "nvidia-smi"])
def test_without_the_program_or_a_driver_there_is_nothing_to_give_back(lacks: str) -> None:
    each = holding()
    if lacks == "the program":
        each.files.pop(str(POWER_PROGRAM))
    elif lacks == "its permission":
        each.files[str(POWER_PROGRAM)].mode = 0o644
    else:
        each.ends["sh -c command -v nvidia-smi"] = Ended(1)
    remove(NoInput(), each)
    assert not each.has_done("release")
    assert each.files == {}


def test_killed_anywhere_the_next_run_ends_in_the_same_place() -> None:
    hosts = killed_everywhere(host, lambda each: apply(GIVEN, each))
    assert len(hosts) > 5
    for each in hosts:
        assert (each.units[NAME].state, each.enabled) == ("active", {NAME})
        assert {*each.files} == {one.path for one in GIVEN.files}
    for each in killed_everywhere(holding, lambda each: remove(NoInput(), each)):
        assert (each.files, each.enabled) == ({}, set())


@pytest.mark.parametrize("text", PLAIN)
def test_no_shell_reads_a_value(text: str) -> None:
    each = host()
    apply(ApplyInput((file(f"/etc/llamaherd/{text}", text=text), *GIVEN.files), restart=True), each)
    remove(NoInput(), each)
    assert [words for words in each.done if words[0] == "sh"] == [["sh", "-c", "command -v nvidia-smi"]]
