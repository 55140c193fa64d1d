"""The state of servers in containers and of images built on the host, by requests to servers and Docker."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from llamaherd.layout import GPU_CHECK, PROJECTS
from llamaherd.onhost.clients import QUERY_SECONDS, docker_runs, query_docker
from llamaherd.onhost.docker_api import query_api
from llamaherd.onhost.files import resolve
from llamaherd.onhost.servers import ContainerState, ServingState
from llamaherd.onhost.system import TIMED_OUT, FailedError, System, UnknownStateError
from roles.serve.onhost.model import InspectServersInput, PlannedContainer, PlannedImage, Probed, ServerStates
from roles.serve.onhost.processes import (
    CONTAINER_RECORDS,
    bounded_arguments,
    changed_since,
    health_url,
    last_option,
    other_variables,
    port_number,
    process_arguments,
    valid_pid,
)
from roles.serve.onhost.wire import LARGEST, Connection, path_of

_LABEL = "llamaherd.spec"
_FILTERS = quote(json.dumps({"label": [_LABEL]}, separators=(",", ":")))

_FORMAT = (
    '{"Id":{{json .ID}},"Name":{{json .Name}},"Image":{{json .Image}},"State":{"Status":{{json .State.Status}},'
    '"Pid":{{json .State.Pid}},"Health":{{with .State.Health}}{{json .Status}}{{else}}""{{end}}},'
    '"Labels":{{json .Config.Labels}},"HostConfig":{{json .HostConfig}}}'
)
"""A line of JSON for each container. All that Docker has of one includes the output of its probes, without a bound.

The names are those of the client's own types, such as `ID`. With a name of the JSON, such as `Id`, the client fills the
template from the JSON, where a container that never ran has no `Health`: it would print an error instead of its line.
"""

_AT_ONCE = 8


class Probes:
    """The requests of an inspection. Tests replace them."""

    def responds(self, url: str, seconds: float) -> bool:
        """Return whether a server responds in time, be it with an error; True where that is not certain."""
        try:
            with closing(Connection(url, time.monotonic() + seconds)) as connection:
                connection.open_response(path_of(url)).read(LARGEST)
        except socket.gaierror:
            return True
        except OSError:
            return False
        except (http.client.HTTPException, ValueError):
            return True
        return True

    def query_docker(self, paths: Sequence[str], seconds: float) -> list[object]:
        """Return what Docker's API returns for paths: None for what it does not have.

        Raise TimeoutError where it does not respond in time, and other OSError where there is no Docker.
        """
        return query_api(paths, seconds)


PROBES = Probes()


@dataclass(frozen=True)
class _Docker:
    """What Docker has: the ids of containers of ours, and by their tags the ids of images."""

    containers: tuple[str, ...]
    images: Mapping[str, str]


@dataclass(frozen=True)
class _Container:
    """A container of ours."""

    name: str
    state: ContainerState
    pid: str
    image: str
    address: str
    """Where its port is published; `host` where it is in its host's network."""

    @property
    def healthy(self) -> bool:
        """Return whether its server responds, by Docker's own probe."""
        return self.state.health == "healthy"


def inspect_containers(given: InspectServersInput, system: System, probes: Probes) -> ServerStates:
    """Return the state of all containers of ours. Raise UnknownStateError where Docker runs and does not respond."""
    docker = _query(given, system, probes)
    if docker is None:
        return ServerStates()
    found = ServerStates(docker=True)
    planned = {each.service: each for each in given.containers}
    every = _containers(docker.containers, given.limits, system)
    for each in every:
        found.containers[each.name] = each.state
        # One that is paused holds its port, too.
        if each.state.port is not None and each.state.status in ("running", "paused"):
            found.ports.add(each.state.port)
        if each.name in planned:
            _inspect_server(planned[each.name], each, found, system)
    # One that still loads may not have begun with CUDA.
    on_gpus = [each for each in every if each.name in planned and each.healthy and planned[each.name].gpus]
    found.off_gpus += _off_gpus([(planned[each.name], each.pid) for each in on_gpus], system)
    found.images += [each.tag for each in given.images if _is_made(each, docker.images.get(each.tag, ""), system)]
    return found


def _query(given: InspectServersInput, system: System, probes: Probes) -> _Docker | None:
    """Return what Docker has; None where there is no Docker, or none that runs.

    Docker's client waits without end at a socket that systemd holds for a daemon that does not start, so the socket is
    queried first, once for all.
    """
    paths = [f"/containers/json?all=1&filters={_FILTERS}", *(f"/images/{each.tag}/json" for each in given.images)]
    tags = [each.tag for each in given.images]
    try:
        containers, *images = _by_socket(paths, probes)
        if isinstance(containers, list):
            ids = tuple(str(each["Id"]) for each in containers if isinstance(each, dict) and "Id" in each)
        else:
            words = ("ps", "-aq", "--no-trunc", "--filter", f"label={_LABEL}")
            ended = query_docker(system, *words)
            if not ended.ok:
                return None
            ids = tuple(ended.out.split())
        pairs = zip(tags, images or [None] * len(tags), strict=True)
        return _Docker(ids, {tag: _image_id(tag, image, system) for tag, image in pairs})
    except UnknownStateError:
        # Where nothing of ours is in a container, Docker may do as it likes.
        if (given.containers or _projects(system)) and docker_runs(system):
            raise
        return None


def _by_socket(paths: Sequence[str], probes: Probes) -> list[object]:
    """Return what Docker returns at its socket; None for what it does not. Raise UnknownStateError."""
    try:
        return probes.query_docker(paths, QUERY_SECONDS)
    except TimeoutError:
        raise UnknownStateError("Docker") from None
    except OSError:
        return [None] * len(paths)


def _image_id(tag: str, image: object, system: System) -> str:
    if isinstance(image, dict) and isinstance(image.get("Id"), str):
        return str(image["Id"])
    return query_docker(system, "image", "inspect", "--format", "{{.Id}}", tag).out.strip()


def _projects(system: System) -> list[str]:
    every = system.names(str(PROJECTS))
    return [name for name in every if (found := resolve(f"{PROJECTS}/{name}", system)) and found.kind == "folder"]


def _containers(ids: Sequence[str], limits: Sequence[str], system: System) -> list[_Container]:
    """Return containers of ours, without those that were removed meanwhile. Raise UnknownStateError and FailedError."""
    if not ids:
        return []
    ended = query_docker(system, "inspect", "--type", "container", "--format", _FORMAT, *ids)
    try:
        return [_container(json.loads(line), limits) for line in ended.out.split("\n") if line]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"`docker inspect` returns something that cannot be read: {type(error).__name__}"
        raise FailedError(message, "see `docker ps` and `systemctl status docker` on the host") from None


def _container(shown: Mapping[str, Any], limits: Sequence[str]) -> _Container:
    """Return a container by a line in _FORMAT. Raise ValueError, LookupError, TypeError or AttributeError."""
    state, host, labels = shown["State"], shown["HostConfig"], shown["Labels"] or {}
    published = [each[0] for each in (host["PortBindings"] or {}).values() if each]
    port = labels.get("llamaherd.port") or "".join(each["HostPort"] for each in published)
    in_host = host["NetworkMode"] == "host"
    return _Container(
        shown["Name"].lstrip("/"),
        ContainerState(
            status=state["Status"],
            health=state["Health"],
            run=shown["Id"],
            spec=labels.get(_LABEL, ""),
            port=port_number(port),
            limits=set_limits(host, limits),
        ),
        valid_pid(str(state["Pid"])),
        shown["Image"],
        "host" if in_host else "".join(each.get("HostIp", "") for each in published),
    )


def set_limits(host: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return the limits that a container has, by Docker's names: `host` is its HostConfig."""
    found = {}
    for name in names:
        value: Any = host
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value not in (None, "", 0, -1):
            found[name] = str(value)
    return found


def _inspect_server(planned: PlannedContainer, each: _Container, found: ServerStates, system: System) -> None:
    """Add what the process of a planned container is, and whether it was started with what lies there now."""
    record = f"{CONTAINER_RECORDS}/{planned.service}"
    changed = changed_since(record, each.state.run, (), planned.inputs, system)
    variables, arguments = "", tuple[str, ...]()
    # While it starts, Docker's own program may still be in its server's place.
    runs = each.pid and each.state.status == "running" and each.state.health != "starting"
    if runs:
        variables = other_variables(each.pid, planned.variables, planned.strange_variables, system)
        arguments = bounded_arguments(each.pid, system)
    # Docker probes it, too, and finds out within two minutes.
    if runs and planned.one_process and each.healthy and each.state.port is not None:
        address = last_option(process_arguments(each.pid, system), "host") if each.address == "host" else each.address
        url = health_url(address, each.state.port, planned.health_path)
        found.probed.append(Probed(planned.service, each.pid, url))
    made = _first_line(planned.image_record, system) if planned.image_record else ""
    replaced = planned.image if made and made != each.image else ""
    found.serving[planned.service] = ServingState(
        changed=changed, arguments=arguments, variables=variables, replaced=replaced
    )


def _first_line(path: str, system: System) -> str:
    return (system.read(path) or "").partition("\n")[0].strip()


def _is_made(planned: PlannedImage, has: str, system: System) -> bool:
    """Return whether an image is the one that was made, where that was kept: its name can be given to any."""
    made = _first_line(planned.record, system)
    return bool(has) and made in ("", has)


def _off_gpus(servers: Sequence[tuple[PlannedContainer, str]], system: System) -> list[str]:
    """Return the services of containers that are not on their GPUs: at boot Docker starts them without a check."""
    program = resolve(str(GPU_CHECK), system)
    if not servers or program is None or not program.mode & 0o111:
        return []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        off = pool.map(lambda each: _is_off(each[0], each[1], system), servers)
        return [planned.service for (planned, _), is_off in zip(servers, off, strict=True) if is_off]


def _is_off(planned: PlannedContainer, pid: str, system: System) -> bool:
    pids = query_docker(system, "top", planned.service, "-eo", "pid").out.split()[1:]
    how = "one" if planned.one_gpu else "every"
    ended = system.run([str(GPU_CHECK), how, "log", " ".join([pid, *pids]), *planned.gpus])
    return ended.code not in (0, TIMED_OUT)
