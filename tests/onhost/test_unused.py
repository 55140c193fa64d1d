"""Builds, images, preset files and caches of a played host: what is found, and removed if it is still unused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from llamaherd.layout import APT_ARCHIVES, BUILDS, KEPT, PRESETS, WORK
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.removal import (
    SOURCES,
    FoundThing,
    Outcome,
    RemoveInput,
    Things,
    UnusedInput,
    Use,
    inspect,
    remove,
)
from llamaherd.onhost.system import Ended, Entry, FailedError, HeldError
from tests.support.played_host import File
from tests.support.service_host import killed_everywhere
from tests.support.store_host import document
from tests.support.used_host import UsedHost

BUILD, OLD = "llama.cpp-000000000000", "llama.cpp-111111111111"
IMAGE, PRESET, SOURCE = f"llamaherd/engine:{OLD}-abcdef", "card-0123456789ab.ini", "ab" * 32
ALL = RemoveInput((BUILD, OLD), (IMAGE,), (PRESET,), (SOURCE,), ("x",), packages=True)


@dataclass
class BuiltHost(UsedHost):
    """A host with builds."""

    images: list[str] = field(default_factory=lambda: [IMAGE])
    building: bool = False
    of_image: str = ""
    """A container that was made of each image."""
    refuses: set[str] = field(default_factory=set)
    """Programs that fail."""

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Play Docker, apt and `du`."""
        match [*argv]:
            case [program, *_] if program in self.refuses or " ".join(argv[:3]) in self.refuses:
                return Ended(1)
            case ["docker", "image", "ls", *_]:
                return Ended(0, "".join(f"{each}\n" for each in (*self.images, "llamaherd/engine:<none>")))
            case ["docker", "image", "inspect", *_]:
                return Ended(0, "40\n")
            case ["docker", "image", "rm", image]:
                self._step()
                self.images.remove(image)
                return Ended(0)
            case ["docker", "ps", "-a", "--filter", *_]:
                return Ended(0, f"{self.of_image}\n" if self.of_image else "")
            case ["du", *_, path]:
                return Ended(0, f"30\t{path}\n")
            case ["systemctl", "list-units", *_]:
                return Ended(0, "llamaherd-build-x.service loaded active\n" if self.building else "")
            case ["apt-get", *_, "clean"]:
                self.files = {path: each for path, each in self.files.items() if not path.endswith(".deb")}
                return Ended(0)
        return super().run(argv, **more)

    def entry(self, path: str) -> Entry | None:
        """Inspect a path: packages have two blocks."""
        found = super().entry(path)
        return replace(found, blocks=2) if found and path.endswith(".deb") else found


def built(**more: Any) -> BuiltHost:
    """Return a host with one of each."""
    files = {
        f"{BUILDS}/{BUILD}/bin/llama-server": File("a program"),
        f"{BUILDS}/{OLD}/bin/llama-server": File("a program"),
        f"{BUILDS}/.trash-0123/it/x": File("left"),
        f"{PRESETS}/{PRESET}": File("[m]"),
        f"{PRESETS}/mine.ini": File("of others"),
        f"{SOURCES}/{SOURCE}": File("much"),
        f"{WORK}/x/log": File("much"),
        f"{APT_ARCHIVES}/a_1_all.deb": File("much"),
        f"{APT_ARCHIVES}/lock": File(""),
    }
    return BuiltHost({}, files=files, **more)


def test_what_is_there() -> None:
    found = inspect(UnusedInput(3), built(of_image="boxed"))
    assert found.things == (
        FoundThing("build", BUILD, 30),
        FoundThing("build", OLD, 30),
        FoundThing("image", IMAGE, 40),
        FoundThing("preset", PRESET, 30),
        FoundThing("source", SOURCE, 30),
        FoundThing("work", "x", 30),
        FoundThing("packages", "apt", 1024),
    )
    assert (found.needs, found.building) == ((Use("container", "boxed", IMAGE),), False)
    assert decode(Things, parse_document(dump(found).encode())) == found
    assert inspect(UnusedInput(3), BuiltHost({}, images=[])).things == (FoundThing("packages", "apt", 0),)
    assert inspect(UnusedInput(3), built(building=True)).building


def test_who_needs_what() -> None:
    host = built()
    host.files["/etc/systemd/system/mine.service"] = File(f"ExecStart={BUILDS}/{BUILD}/bin/llama-server -m x")
    host.files[f"{KEPT}/llama-chat/last/file"] = File(f"image: {IMAGE}\nconfig: {PRESETS}/{PRESET}\n")
    needs = inspect(UnusedInput(0), host).needs
    assert Use("unit", "mine.service", f"{BUILD}/bin/llama-server -m x") in needs
    assert {use.path for use in needs if use.kind == "kept"} == {IMAGE, OLD, PRESET}
    done = remove(ALL, host)
    assert done.kept == {
        f"build {BUILD}": "unit mine.service needs it",
        f"build {OLD}": "kept llama-chat needs it",
        f"image {IMAGE}": "kept llama-chat needs it",
        f"preset {PRESET}": "kept llama-chat needs it",
    }


def test_who_is_given_all_builds_needs_each() -> None:
    host = built()
    host.files["/srv/all.sh"] = File(f"ls {BUILDS} ")
    assert remove(ALL, host).kept[f"build {OLD}"] == "file /srv/all.sh needs it"
    assert f"preset {PRESET}" in remove(ALL, host).removed


def test_all_that_is_unused_is_removed() -> None:
    host = built()
    done = remove(ALL, host)
    assert done == Outcome(
        (
            *(f"build {BUILD}", f"build {OLD}", f"image {IMAGE}", f"preset {PRESET}", f"source {SOURCE}"),
            *("work x", "packages apt"),
        )
    )
    assert sorted(host.files) == [f"{PRESETS}/mine.ini", f"{APT_ARCHIVES}/lock"]
    found = remove(RemoveInput((OLD,)), BuiltHost({}))
    assert found == Outcome()


def test_killed_anywhere_nothing_lies_half_in_its_place() -> None:
    hosts = killed_everywhere(built, lambda host: remove(RemoveInput((BUILD, OLD), presets=(PRESET,)), host))
    assert len(hosts) > 6
    for host in hosts:
        left = [path for path in host.files if "trash" in path or "llama-server" in path or PRESET in path]
        assert left == []


def test_what_builds_work_with_stays_while_one_runs() -> None:
    done = remove(ALL, built(building=True))
    assert done.kept == dict.fromkeys((f"source {SOURCE}", "work x"), "a build is running now")


def test_what_cannot_be_removed_is_kept() -> None:
    class Busy(BuiltHost):
        def rename(self, path: str, to: str) -> None:
            raise OSError(16, "Device or resource busy", path, None, to)

    host = Busy({}, files=built().files, refuses={"docker image rm", "apt-get"})
    done = remove(ALL, host)
    assert done.kept[f"build {OLD}"] == "it cannot be removed"
    assert done.kept[f"image {IMAGE}"] == "Docker does not remove it"
    assert done.kept["packages apt"] == "apt does not remove them"
    assert not any("trash" in path for path in (*host.files, *host.folders))


def test_another_run_is_not_disturbed() -> None:
    class Held(BuiltHost):
        def lock(self, name: str, seconds: float, purpose: str) -> Any:
            if name == "build":
                raise HeldError("another run holds it")
            return super().lock(name, seconds, purpose)

    host = Held({}, files=built().files)
    assert remove(ALL, host) == Outcome(busy="")
    assert f"{BUILDS}/{OLD}/bin/llama-server" in host.files


def test_docker_that_hangs_removes_nothing() -> None:
    host = built(described=[{}], docker_hangs=True)
    with pytest.raises(FailedError, match="Docker does not respond"):
        remove(ALL, host)
    assert f"{BUILDS}/{OLD}/bin/llama-server" in host.files


def test_the_verbs_are_found_by_their_names() -> None:
    assert document("llamaherd.removal.remove", ALL)
