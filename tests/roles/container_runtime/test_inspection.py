"""What is inspected of Docker and of NVIDIA's container toolkit, on a played host."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.layout import UNDO_RUN
from llamaherd.onhost import docker_api
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, Ended, UnknownStateError
from llamaherd.onhost.verbs import find_verb
from roles.container_runtime import DOCKER_PACKAGES, PACKAGES, state_parts
from roles.container_runtime.onhost import DaemonFound, Found, InspectInput, UnitFound, inspect
from tests.support.played_host import File
from tests.support.recording import InspectedHost

CLIENT, SETTINGS = "/usr/bin/docker", "/etc/docker/daemon.json"
GIVEN = InspectInput(DOCKER_PACKAGES)
ON_GPUS = InspectInput(DOCKER_PACKAGES, PACKAGES, SETTINGS)
INFO: dict[str, Any] = {
    "ServerVersion": "26.1.5+dfsg1",
    "LiveRestoreEnabled": True,
    "Runtimes": {"nvidia": {}, "runc": {}},
    "CDISpecDirs": ["/etc/cdi"],
}
DAEMON = DaemonFound("26.1.5+dfsg1", live_restore=True, runtimes=("nvidia", "runc"), cdi=True)
UNITS = """\
Id=docker.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
Requires=system.slice docker.socket
Wants=containerd.service

Id=docker.socket
LoadState=masked
ActiveState=inactive
UnitFileState=masked-runtime
Requires=
Wants=

Id=nvidia-cdi-refresh.path
LoadState=loaded
UnitFileState=enabled

Id=nvidia-cdi-refresh.service
LoadState=not-found
UnitFileState=
"""
DPKG = "docker.io\t26.1.5+dfsg1-9\tinstalled\ndocker-compose\t2.26.1-4\tinstalled\ndocker-ce\t1\tconfig-files\n"
NO_DAEMON = Ended(1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")


def host(*, client: str = CLIENT, state: str = "", **ends: Ended) -> InspectedHost:
    """Return a host with Docker, whose unit is in this state."""
    known = {"systemctl show -p Id": Ended(0, UNITS), "dpkg-query": Ended(1, DPKG)}
    known |= {"systemctl show -P ActiveState docker.service": Ended(0, f"{state}\n")}
    named = {name.replace("_", " "): ended for name, ended in ends.items()}
    played = InspectedHost({}, ends={**named, **known})
    played.folders.add("/run/systemd/system")
    if client:
        played.files[client] = File("", 0o755)
    return played


class SnapHost(InspectedHost):
    """A host whose name `docker` is a link of snap."""

    path = ""

    def resolved(self, path: str) -> str:
        """Follow that link."""
        return self.path if path == "/snap/bin/docker" else path


def responds(info: object = None, containers: object = None) -> Any:
    """Return a Docker API that returns this."""

    def query(paths: Sequence[str], _: float) -> list[object]:
        assert set(paths) <= {"/info", "/containers/json"}
        return [INFO if info is None else info, containers][: len(paths)]

    return query


def fails(error: OSError) -> Any:
    """Return a Docker API that fails."""

    def query(_: Sequence[str], __: float) -> list[object]:
        raise error

    return query


def test_docker_of_a_distribution() -> None:
    played = host()
    found = inspect(GIVEN, played, responds())
    assert found.daemon == DAEMON
    assert found.packages == {"docker.io": "26.1.5+dfsg1-9", "docker-compose": "2.26.1-4"}
    assert found.units == {
        "docker.service": UnitFound(
            "loaded", "active", "enabled", ("system.slice", "docker.socket", "containerd.service")
        ),
        "docker.socket": UnitFound("masked", "inactive", "masked-runtime", ()),
    }
    assert (found.armed, found.is_snap, found.compose, found.program, found.refresh) == (False, False, "", "", {})
    # Each program once, and none that waits for the daemon.
    assert [each[0] for each in played.done] == ["systemctl", "dpkg-query"]


def test_a_host_without_docker_shows_its_masks() -> None:
    played = host(client="")
    played.files["/usr/local/bin/docker"] = File("", 0o644)  # it cannot be run
    found = inspect(GIVEN, played, fails(FileNotFoundError(2, "")))
    assert found == Found(units=found.units)
    assert found.units["docker.socket"].load == "masked"
    assert [each[0] for each in played.done] == ["systemctl"]


@pytest.mark.parametrize("path", ["/usr/bin/snap", "/snap/docker/2893/bin/docker"])
def test_docker_of_a_snap(path: str) -> None:
    played = SnapHost(**vars(host(client="")))
    played.path = path
    played.files[path] = File("", 0o755)
    assert inspect(GIVEN, played, responds()).is_snap
    assert not inspect(GIVEN, host(), responds()).is_snap


def test_compose_is_run_where_no_package_brings_it() -> None:
    played = host(docker_compose_version=Ended(0, "v2.40.3\n"))
    assert inspect(GIVEN, played, responds()).compose == ""
    played.ends["dpkg-query"] = Ended(0, "docker-ce\t5:29.1.3-1\tinstalled\n")
    assert inspect(GIVEN, played, responds()).compose == "v2.40.3"


@pytest.mark.parametrize(
    ("query", "info"),
    [
        (fails(FileNotFoundError(2, "")), Ended(1, '{"ServerErrors": ["Cannot connect"]}', "")),
        (fails(OSError("not HTTP")), Ended(1, "", "no JSON")),
        (responds({"message": "odd"}), Ended(0, "[]")),
        (responds([]), Ended(0, '{"ServerVersion": ""}')),
        (responds([]), Ended(NOT_STARTED)),
    ],
)
def test_a_docker_whose_daemon_does_not_run_has_the_version_of_its_program(query: Any, info: Ended) -> None:
    version = Ended(0, "Docker version 29.1.3, build abc\n")
    played = host(docker_info=info)
    played.ends |= {"docker --version": version}
    found = inspect(GIVEN, played, query)
    assert (found.daemon, found.program) == (None, "29.1.3")
    played.ends |= {"dockerd --version": Ended(0, "Docker version 28.0.1, build abc\n")}
    assert inspect(GIVEN, played, query).program == "28.0.1"
    played.ends |= {"dockerd --version": Ended(0, "another program\n")}
    assert inspect(GIVEN, played, query).program == ""
    played.ends |= {"dockerd --version": Ended(1), "docker --version": Ended(1)}
    assert inspect(GIVEN, played, query).program == ""


def test_the_client_is_queried_where_the_socket_is_elsewhere() -> None:
    played = host(docker_info=Ended(0, json.dumps(INFO)), docker_ps=Ended(0, "a\nb\n"))
    elsewhere = fails(FileNotFoundError(2, ""))
    assert inspect(GIVEN, played, elsewhere).daemon == DAEMON
    assert inspect(ON_GPUS, played, elsewhere).daemon == replace(DAEMON, running=("a", "b"))


def test_a_docker_that_runs_and_does_not_respond_is_unknown() -> None:
    with pytest.raises(UnknownStateError, match="Docker"):
        inspect(GIVEN, host(state="active"), fails(TimeoutError()))
    stopped = host(state="activating")
    assert inspect(GIVEN, stopped, fails(TimeoutError())).daemon is None
    silent = host(state="active", docker_info=NO_DAEMON)
    with pytest.raises(UnknownStateError, match="Docker"):
        inspect(GIVEN, silent, fails(ConnectionRefusedError()))
    hangs = host(docker_info=Ended(0, json.dumps(INFO)), docker_ps=Ended(TIMED_OUT))
    with pytest.raises(UnknownStateError, match="Docker"):
        inspect(ON_GPUS, hangs, fails(ConnectionRefusedError()))
    asleep = host()
    asleep.ends = {"systemctl": Ended(TIMED_OUT)}
    with pytest.raises(UnknownStateError, match="systemd"):
        inspect(GIVEN, asleep, responds())


def test_what_gives_gpus_to_containers() -> None:
    listed = "INFO[0000] Found 2 CDI devices\nnvidia.com/gpu=GPU-1\nnvidia.com/gpu=all\nnvidia.com/net=0\n"
    toolkit = "".join(f"{name}\t1.20.0-1\tinstalled\n" for name in PACKAGES)
    played = host()
    played.ends |= {"nvidia-ctk cdi list": Ended(0, listed), "dpkg-query": Ended(0, f"{DPKG}{toolkit}")}
    played.files[SETTINGS] = File('{"a": "pa55word"}')
    played.files[f"{UNDO_RUN}/docker"] = File("")
    containers = [
        *({"Names": ["/b", "/client/b"]}, {"Names": ["/$(id)"]}, {"Names": None}, {}, "odd"),
        {"Names": ["/a", 3]},
    ]
    found = inspect(ON_GPUS, played, responds(containers=containers))
    assert found.daemon == replace(DAEMON, running=("b", "$(id)", "a", "3"))
    assert found.devices == ("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=all")
    assert found.refresh == {"nvidia-cdi-refresh.path": "enabled"}
    assert found.armed
    assert "pa55word" not in repr(found)
    assert [each[0] for each in played.done] == ["systemctl", "dpkg-query", "nvidia-ctk"]
    (docker,) = state_parts(decode(Found, parse_document(dump(found).encode())))
    assert (docker.settings, docker.toolkit) == (b'{"a": "pa55word"}', dict.fromkeys(PACKAGES, "1.20.0-1"))
    assert (docker.running, docker.devices) == (("b", "$(id)", "a", "3"), set(found.devices))
    assert docker.units["docker.socket"] == found.units["docker.socket"]
    assert docker.units["docker.socket"].is_masked
    assert (docker.origin, docker.version, docker.compose) == ("docker.io", (26, 1, 5), (2, 26, 1))
    assert (docker.responds, docker.live_restore, docker.cdi, docker.armed) == (True, True, True, True)
    assert docker.runtimes == {"nvidia", "runc"}


def test_containers_are_listed_by_the_client_where_the_api_does_not_list_them() -> None:
    played = host(docker_ps=Ended(0, "a\n"))
    assert inspect(ON_GPUS, played, responds(containers=None)).daemon == replace(DAEMON, running=("a",))


def test_a_toolkit_without_docker() -> None:
    played = host(client="")
    played.ends["dpkg-query"] = Ended(0, f"{PACKAGES[0]}\t1.20.0-1\tinstalled\n")
    found = inspect(ON_GPUS, played, fails(FileNotFoundError(2, "")))
    assert (found.packages, found.settings, found.devices) == ({PACKAGES[0]: "1.20.0-1"}, None, ())
    (asked,) = [each for each in played.done if each[0] == "dpkg-query"]
    assert asked[4:] == [*PACKAGES]


def test_a_host_without_docker_has_no_version() -> None:
    (docker,) = state_parts(Found())
    assert (docker.there, docker.version, docker.compose, docker.settings) == (False, (), (), None)
    with pytest.raises(ValueError, match=r"."):
        state_parts(Found(settings=Secret("?")))
    (docker,) = state_parts(Found(settings=Secret(base64.b64encode(b"\xff").decode())))
    assert docker.settings == b"\xff"


@pytest.mark.usefixtures("starts_processes")
def test_the_verb_queries_dockers_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_api, "DOCKER_SOCKET", "/nonexistent/docker.sock")
    played = host(docker_info=Ended(NOT_STARTED))
    found = find_verb("container_runtime.inspect").run(GIVEN, played)
    assert isinstance(found, Found)
    assert found.daemon is None
