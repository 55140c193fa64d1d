"""Containers and images as an inspection finds them, by a played Docker."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.layout import GPU_CHECK
from llamaherd.onhost.servers import ContainerState, ServingState
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, UnknownStateError
from roles.serve.onhost.containers import inspect_containers
from roles.serve.onhost.model import InspectServersInput, PlannedContainer, PlannedImage, Probed, ServerStates
from roles.serve.state import LIMITS
from tests.support.inspected_host import InspectedHost
from tests.support.played_host import File

ID, IMAGE = "d7" * 32, f"sha256:{'0a' * 32}"
TAG, RECORD = "llamaherd/engine:a", "/var/lib/llamaherd/images/llamaherd_engine_a"
BOXED = PlannedContainer(
    service="llama-boxed",
    inputs=("-",),
    variables=(),
    strange_variables="^LLAMA_",
    health_path="/health",
    image=TAG,
    image_record=RECORD,
    one_process=True,
    gpus=(),
    one_gpu=False,
)
QUESTION = InspectServersInput(containers=(BOXED,), images=(PlannedImage(TAG, RECORD),), limits=LIMITS)
LISTED, IMAGES = "/containers/json", "/images/"
DOWN = Ended(1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")


def container(**values: Any) -> dict[str, Any]:
    """Return a container as `docker inspect` prints it in our format, and more."""
    return {
        "Id": ID,
        "Name": "/llama-boxed",
        "Image": IMAGE,
        "State": {"Status": "running", "Pid": 7, "Health": "healthy"},
        "Labels": {"llamaherd.spec": "46fa", "other": ""},
        "HostConfig": {
            "NetworkMode": "bridge",
            "PortBindings": {"8081/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8081"}]},
            "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
            "PidsLimit": 512,
            "Memory": 0,
            "MemorySwap": -1,
            "NanoCpus": 0,
            "CpusetCpus": "",
            "BlkioWeight": None,
        },
        **values,
    }


def played(*containers: dict[str, Any]) -> InspectedHost:
    """Return a host whose Docker has these, and the image."""
    host = InspectedHost({"docker inspect": Ended(0, "".join(f"{json.dumps(each)}\n" for each in containers))})
    host.docker_api = {LISTED: [{"Id": each["Id"], "Labels": {}} for each in containers], IMAGES: {"Id": IMAGE}}
    host.process(7, "llama-server", "--host", "::1", "--port", "8081")
    host.files["/var/lib/llamaherd/started/llama-boxed"] = File(f"run\t{ID}\n")
    return host


def inspected(host: InspectedHost, question: InspectServersInput = QUESTION) -> ServerStates:
    """Return what is found."""
    return inspect_containers(question, host, host)


def test_a_container_as_planned() -> None:
    host = played(container())
    found = inspected(host)
    limits = {"PidsLimit": "512", "RestartPolicy.Name": "unless-stopped"}
    state = ContainerState("running", "healthy", ID, "46fa", 8081, limits)
    assert found.containers == {"llama-boxed": state}
    words = ("llama-server", "--host", "::1", "--port", "8081")
    assert found.serving == {"llama-boxed": ServingState(arguments=words)}
    assert (found.images, found.ports, found.docker) == ([TAG], {8081}, True)
    assert found.probed == [Probed("llama-boxed", "7", "http://127.0.0.1:8081/health")]
    assert [(words[1], words[-1]) for words in host.ran] == [("inspect", ID)], "one program is started for all"


def test_a_container_that_never_ran() -> None:
    state = {"Status": "created", "Pid": 0, "Health": ""}
    config = {"NetworkMode": "bridge", "PortBindings": None}
    found = inspected(played(container(State=state, Labels={"llamaherd.spec": "46fa"}, HostConfig=config)))
    assert found.containers == {"llama-boxed": ContainerState("created", "", ID, "46fa")}
    assert (found.ports, found.probed) == (set(), [])


def test_a_container_in_its_hosts_network_has_the_port_of_its_label_and_its_own_address() -> None:
    labels = {"llamaherd.spec": "46fa", "llamaherd.port": "8090"}
    config = {"NetworkMode": "host", "PortBindings": {}}
    found = inspected(played(container(Labels=labels, HostConfig=config)))
    assert found.containers["llama-boxed"].port == 8090
    assert found.probed == [Probed("llama-boxed", "7", "http://[::1]:8090/health")]


@pytest.mark.parametrize("label", ["none", "²", "-1", "9" * 400, "65536"])
def test_a_label_that_is_no_port(label: str) -> None:
    labels = {"llamaherd.spec": "46fa", "llamaherd.port": label}
    assert inspected(played(container(Labels=labels))).containers["llama-boxed"].port is None


@pytest.mark.parametrize("status", ["paused", "exited"])
def test_a_paused_container_holds_its_port(status: str) -> None:
    found = inspected(played(container(State={"Status": status, "Pid": 7, "Health": "healthy"})))
    assert found.ports == ({8081} if status == "paused" else set())


def test_a_container_that_starts_may_still_be_dockers_own_program() -> None:
    host = played(container(State={"Status": "running", "Pid": 7, "Health": "starting"}))
    host.process(7, "runc", LLAMA_X="1")
    found = inspected(host)
    assert (found.serving["llama-boxed"].variables, found.probed) == ("", [])


def test_a_server_of_several_processes_is_not_probed() -> None:
    question = replace(QUESTION, containers=(replace(BOXED, one_process=False),))
    assert inspected(played(container()), question).probed == []


def test_what_differs_of_a_container() -> None:
    host = played(container())
    host.process(7, "llama-server", LLAMA_ARG_X="1")
    host.files["/var/lib/llamaherd/started/llama-boxed"] = File("run\tanother\n")
    host.files[RECORD] = File(f"sha256:{'0b' * 32}\n")
    serving = ServingState(changed=("another",), variables="LLAMA_ARG_X", replaced=TAG, arguments=("llama-server",))
    found = inspected(host)
    assert found.serving == {"llama-boxed": serving}
    assert found.images == [], "its name was given to another image"


def test_the_image_that_was_made() -> None:
    host = played(container())
    host.files[RECORD] = File(f"{IMAGE}\n")
    found = inspected(host)
    assert (found.images, found.serving["llama-boxed"].replaced) == ([TAG], "")


def test_a_pulled_image_has_no_record() -> None:
    question = InspectServersInput(containers=(replace(BOXED, image_record=""),), limits=LIMITS)
    assert inspected(played(container()), question).serving["llama-boxed"].replaced == ""


def test_containers_of_others_and_those_that_are_not_planned() -> None:
    assert inspected(played()).containers == {}
    found = inspected(played(container()), InspectServersInput(limits=LIMITS))
    assert ({*found.containers}, found.serving, found.ports) == ({"llama-boxed"}, {}, {8081})


@pytest.mark.parametrize("text", ["{", "[1]", '{"Id": "x"}', '"x"', "null", "{}1"])
def test_what_docker_cannot_have_printed(text: str) -> None:
    host = played(container())
    host.answers["docker inspect"] = Ended(0, text)
    with pytest.raises(FailedError, match="cannot be read"):
        inspected(host)


def test_a_container_that_is_removed_meanwhile() -> None:
    host = played(container())
    host.answers["docker inspect"] = Ended(1, "\n", f"Error: No such container: {ID}")
    assert inspected(host).containers == {}


# Where Docker does not respond


def client(**ends: Ended) -> InspectedHost:
    """Return a host without Docker's socket, whose client ends like this."""
    host = played(container())
    host.docker_api = FileNotFoundError(2, "No such file or directory")
    host.answers |= {f"docker {name.replace('_', ' ')}": ended for name, ended in ends.items()}
    return host


def test_where_the_socket_does_not_respond_the_client_is_used() -> None:
    found = inspected(client(ps=Ended(0, f"{ID}\n"), image_inspect=Ended(0, f"{IMAGE}\n")))
    assert ({*found.containers}, found.images, found.docker) == ({"llama-boxed"}, [TAG], True)
    assert inspected(client(ps=Ended(0, ""), image_inspect=Ended(1, "", "No such image"))).images == []


def test_a_socket_that_returns_errors_alone() -> None:
    host = client(ps=Ended(0, f"{ID}\n"), image_inspect=Ended(0, f"{IMAGE}\n"))
    host.docker_api = {}
    assert inspected(host).images == [TAG]


def test_a_host_without_docker() -> None:
    host = InspectedHost()
    assert inspected(host) == ServerStates()
    assert host.ran == [["docker", "ps", "-aq", "--no-trunc", "--filter", "label=llamaherd.spec"]]


def test_a_docker_that_is_stopped_has_no_containers_that_run() -> None:
    host = client(ps=DOWN)
    host.answers["systemctl show -P ActiveState docker.service"] = Ended(0, "inactive\n")
    assert inspected(host) == ServerStates()


ACTIVE, INACTIVE = Ended(0, "active\n"), Ended(0, "inactive\n")


def hang(host: InspectedHost) -> None:
    host.docker_api = TimeoutError("timed out")


def refuse(host: InspectedHost) -> None:
    host.answers["docker ps"] = DOWN


def hang_client(host: InspectedHost) -> None:
    host.answers["docker ps"] = Ended(TIMED_OUT)


def hang_at_images(host: InspectedHost) -> None:
    host.answers |= {"docker ps": Ended(0, ""), "docker image": Ended(TIMED_OUT)}


@pytest.mark.parametrize("fails", [hang, refuse, hang_client, hang_at_images])
@pytest.mark.parametrize("concerned", ["planned", "there", ""])
def test_a_docker_that_runs_and_does_not_respond(fails: Callable[[InspectedHost], None], concerned: str) -> None:
    """Where nothing of ours is in a container, Docker may do as it likes."""
    host = client()
    fails(host)
    host.answers["systemctl show -P ActiveState docker.service"] = ACTIVE
    if concerned == "there":
        host.files["/etc/llamaherd/compose/old/compose.yaml"] = File("")
    question = QUESTION if concerned == "planned" else replace(QUESTION, containers=())
    if concerned:
        with pytest.raises(UnknownStateError, match="Docker"):
            inspected(host, question)
    else:
        assert inspected(host, question) == ServerStates()


def test_a_docker_that_cannot_start_does_not_respond_and_is_none() -> None:
    host = client()
    hang(host)
    host.answers["systemctl show -P ActiveState docker.service"] = INACTIVE
    assert inspected(host) == ServerStates()


def test_a_docker_that_stops_to_respond_halfway() -> None:
    host = played(container())
    host.answers["docker inspect"] = Ended(TIMED_OUT)
    with pytest.raises(UnknownStateError, match="Docker"):
        inspected(host)


# GPUs

ON_GPUS = replace(QUESTION, containers=(replace(BOXED, gpus=("GPU-1", "$(id) 'x'"), one_gpu=False),))


def on_gpus(code: int, *, health: str = "healthy") -> InspectedHost:
    """Return a host whose program for GPUs ends like this."""
    host = played(container(State={"Status": "running", "Pid": 7, "Health": health}))
    host.files[str(GPU_CHECK)] = File("", 0o755)
    host.answers |= {"docker top": Ended(0, "PID\n7\n9\n"), str(GPU_CHECK): Ended(code)}
    return host


@pytest.mark.parametrize(("code", "off"), [(0, []), (1, ["llama-boxed"]), (TIMED_OUT, [])])
def test_a_container_that_is_not_on_its_gpus(code: int, off: list[str]) -> None:
    host = on_gpus(code)
    assert inspected(host, ON_GPUS).off_gpus == off
    assert host.ran[-1] == [str(GPU_CHECK), "every", "log", "7 7 9", "GPU-1", "$(id) 'x'"]


def test_one_of_several_gpus_may_do() -> None:
    host = on_gpus(0)
    question = replace(QUESTION, containers=(replace(BOXED, gpus=("GPU-1",), one_gpu=True),))
    inspected(host, question)
    assert host.ran[-1][1] == "one"


def test_a_container_that_still_loads_is_not_checked() -> None:
    assert inspected(on_gpus(1, health="starting"), ON_GPUS).off_gpus == []


@pytest.mark.parametrize("mode", [0o644, None])
def test_without_the_program_nothing_is_checked(mode: int | None) -> None:
    host = on_gpus(1)
    del host.files[str(GPU_CHECK)]
    if mode:
        host.files[str(GPU_CHECK)] = File("", mode)
    assert inspected(host, ON_GPUS).off_gpus == []


def test_a_docker_that_hangs_at_the_processes_of_a_container() -> None:
    def hangs(_: Sequence[str]) -> Ended:
        return Ended(TIMED_OUT)

    host = on_gpus(0)
    host.answers["docker top"] = hangs
    with pytest.raises(UnknownStateError, match="Docker"):
        inspected(host, ON_GPUS)
