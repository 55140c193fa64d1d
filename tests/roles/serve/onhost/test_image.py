"""The image of an engine: made from what the host has built, and nothing is left over where that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from llamaherd.onhost.system import Ended, FailedError
from roles.serve.onhost.image import LOG, make_image
from roles.serve.onhost.model import ImageInput
from tests.support.played_host import File, PlayedHost

GIVEN = ImageInput("llamaherd/engine:b-1", "llamaherd/base:debian-13-1", ("busybox",), "b", "FROM x", "/var/lib/record")
BASE = "/var/lib/llamaherd/work/base.tar"
SERVER = "/opt/llamaherd/builds/b/bin/llama-server"


@dataclass
class Builder(PlayedHost):
    """A host with a build, and Docker that builds."""

    base_there: bool = True
    fails: str = ""
    ran: list[list[str]] = field(default_factory=list)
    context: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        self.ran.append([*argv])
        if argv[:2] == ["docker", "build"]:
            assert environment
            assert environment["DOCKER_BUILDKIT"] == "0"
            self.context = {name.rpartition("/")[2]: file.text for name, file in self.files.items() if argv[-1] in name}
        if self.fails and self.fails in argv:
            return Ended(1, "", "the mirror does not respond\n")
        if argv[:3] == ["docker", "image", "inspect"]:
            return Ended(0, "sha256:1\n") if "--format" in argv or self.base_there else Ended(1)
        if argv[0] in ("mmdebstrap", "docker"):
            return Ended(0)
        return super().run(argv, seconds=seconds, text=text, environment=environment)


def builder(**more: object) -> Builder:
    """Return a host that has built the engine."""
    host = Builder({}, files={SERVER: File("an engine", 0o755)})
    host.files["/etc/os-release"] = File("NAME=x\nVERSION_CODENAME=trixie\n")
    host.files["/etc/apt/sources.list.d/debian.sources"] = File("URIs: x")
    host.files["/etc/apt/sources.list"] = File("")
    for name, value in more.items():
        setattr(host, name, value)
    return host


def test_the_context_has_the_engine_and_the_dockerfile_alone() -> None:
    host = builder()
    make_image(GIVEN, host)
    assert host.context == {"llama-server": "an engine", "Dockerfile": "FROM x"}
    assert host.read(GIVEN.record) == "sha256:1\n"
    assert not host.names("/var/lib/llamaherd/work")


def test_a_base_is_made_where_there_is_none() -> None:
    host = builder(base_there=False)
    make_image(GIVEN, host)
    made = next(each for each in host.ran if each[0] == "mmdebstrap")
    sources = "/etc/apt/sources.list.d/debian.sources"
    assert made[2:] == ["--include=busybox", "trixie", BASE, sources]
    assert ["docker", "import", BASE, GIVEN.base] in host.ran


@pytest.mark.parametrize("fails", ["mmdebstrap", "import", "build"])
def test_a_failure_is_reported_and_leaves_nothing(fails: str) -> None:
    host = builder(base_there=False, fails=fails)
    with pytest.raises(FailedError, match="cannot make") as caught:
        make_image(GIVEN, host)
    assert caught.value.log == ("the mirror does not respond",)
    assert not host.names("/var/lib/llamaherd/work")
    assert not host.entry(GIVEN.record)
    assert bool(host.read(LOG)) is (fails != "build")


def test_an_engine_that_is_not_built_is_reported() -> None:
    host = builder()
    del host.files[SERVER]
    with pytest.raises(FailedError, match=f"cannot make image {GIVEN.tag}: {SERVER} No such file"):
        make_image(GIVEN, host)
