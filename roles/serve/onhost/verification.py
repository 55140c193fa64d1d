"""Verify servers by other means than the inspection: units, processes, GPUs, ports, and requests as clients send."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urljoin

from llamaherd.onhost.clients import query_docker, query_systemctl
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.server_control import left_of
from llamaherd.onhost.services import show_units
from llamaherd.onhost.status import sleeps
from llamaherd.onhost.system import TIMED_OUT, Entry, System, UnknownStateError
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.containers import set_limits
from roles.serve.onhost.model import (
    Access,
    ContainerFound,
    GpuProcesses,
    GpusFound,
    ImageFound,
    Listening,
    Mount,
    OwnedFile,
    PlannedImage,
    PlannedServer,
    ProbeResult,
    ProcessFound,
    Requests,
    Responses,
    ServerFound,
    UnitFound,
    VerifiedServers,
    VerifyServersInput,
)
from roles.serve.onhost.processes import listening_sockets, socket_owners
from roles.serve.onhost.proof import (
    CALLED,
    FORMED,
    ProofStep,
    read_caps,
    try_embedding,
    try_order,
    try_schema,
    try_step,
    try_tools,
    why_not_tried,
)
from roles.serve.onhost.session import SHORT, Limits, Session
from roles.serve.onhost.units import DECIDING
from roles.serve.onhost.wire import NotServingError, parse_declared

SECONDS = 30
"""Limit of all probes of a server. They take a second, unless it hangs or responds to other clients."""
_LIMITS = Limits(later=SECONDS, step=10, steps=2)


def probe_server(question: Mapping[str, object], key: str | None, limits: Limits = _LIMITS) -> tuple[ProbeResult, ...]:
    """Try what clients do, and return the result of each probe: all of them if the first one has not failed.

    A probe is left out where the server's chat template does not support it. Raise DocumentError.
    """
    session = Session(parse_declared(question, key), time.monotonic() + limits.later, limits)
    with closing(session.connection):
        return tuple(_results(session))


def _results(session: Session) -> Iterator[ProbeResult]:
    first, *others = _PROBES.get(session.server.kind, _PROBES["chat"])
    result = _result(session, first)
    if result:
        yield result
    if result is None or result.outcome != "failed":
        yield from filter(None, (_result(session, each) for each in others))


def _result(session: Session, step: ProofStep) -> ProbeResult | None:
    """Return how a probe ended; None where the server does not support it."""
    try:
        ending, found = try_step(session, step)
    except NotServingError as error:
        return ProbeResult(step.name, "failed", str(error))
    match ending:
        case "passed":
            return ProbeResult(step.name, "passed", found)
        case "unsupported":
            return ProbeResult(step.name, "note", found) if found else None
        case _:
            return ProbeResult(step.name, "note", f"not tried, since {why_not_tried(session, ending)}")


def _try_prompt(session: Session) -> str:
    """Require text in a response that is not streamed, and read what the chat template supports."""
    session.require_text(session.complete, "a prompt that is not streamed")
    read_caps(session)
    return "text in a response that is not streamed"


_PROBES = {
    "chat": (
        ProofStep("prompt", _try_prompt, 8, SHORT),
        ProofStep("schema", try_schema, 16, FORMED),
        ProofStep("tools", try_tools, 120, CALLED),
    ),
    "embeddings": (ProofStep("embeddings", try_embedding, 16, 1),),
    "rerank": (ProofStep("rerank", try_order, 64, 1),),
}
"""By what a server is for. The first probe measures how fast the others will be."""


_MOST = 100
"""Programs that are returned."""
_LOOPBACK = re.compile("[0-9A-F]*7F|0+1000000")
"""127.0.0.0/8, also in an address of IPv6, and ::1: in words of 32 bits, as x86 and ARM write them."""
_GROUP = re.compile(r"^(?:0:|1:name=systemd):.*/([^/\n]+)$", re.MULTILINE)

MOST_BYTES = 128 << 10
"""Bytes of a response: a chat of 64 tokens has some 20 kB, and what a server has loaded not much more."""

_REQUEST_SECONDS = 5
"""Limit of a request for which the server computes nothing."""

_SPARE = 10

_RATE = "1M"
"""Bytes per second: curl before 8.4 does not end a response that exceeds its limit without declaring its length."""

_NO_RESPONSE, _SUCCEEDED = "curl: (28)", "\n200"

_GPU_SECONDS = 30
"""Limit of nvidia-smi: a driver may hang."""

_DRIVER = "/proc/driver/nvidia/gpus"
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,9})$", re.MULTILINE)
_DEVICE = re.compile("/dev/(?:nvidia|dxg).*")
_MOST_DEVICES = 1000
_CONTAINER = (
    '{"Status":{{json .State.Status}},"Pid":{{json .State.Pid}},'
    '"Health":{{with .State.Health}}{{json .Status}}{{else}}""{{end}},"Image":{{json .Image}},'
    '"User":{{json .Config.User}},"Labels":{{json .Config.Labels}},"Mounts":{{json .Mounts}},'
    '"HostConfig":{{json .HostConfig}}}'
)
_IMAGE = '{"Id":{{json .Id}},"Size":{{json .Size}}}'
_PUBLISHED = "{{.Names}} {{.Ports}}"
_SOCKET = "/var/run/docker.sock"
_MOST_PUBLISHED = 100
_PROPERTIES = (
    *("ActiveState", "UnitFileState", "Result", "FragmentPath", "DropInPaths", "NeedDaemonReload", "MainPID"),
)
_DECIDING = re.compile(DECIDING)
_SPEC = "LLAMAHERD_SPEC="
_MOST_FILES, _MOST_WORDS, _MOST_NAMES = 10_000, 4096, 100

_DISK_SECONDS = 15
"""A limit that lets a sleeping disk wake up."""

Value = TypeVar("Value")
Prober = Callable[[Mapping[str, object], "str | None"], tuple[ProbeResult, ...]]
"""Probes a server by what is declared of it, and by its key."""


def find_listening(system: System) -> tuple[Listening, ...]:
    """Return each program that listens for other hosts, by port."""
    sockets = [each for each in listening_sockets(system) if not _LOOPBACK.fullmatch(each.address)]
    pids = socket_owners({each.inode for each in sockets}, system)
    held = sorted({(each.port, pids.get(each.inode, 0)) for each in sockets})
    return tuple(_listening(port, pid, system) for port, pid in held[:_MOST])


def find_holder(port: int, system: System) -> str:
    """Return the process that listens at a port, as `python3 (process 7)`; empty if none is found."""
    inodes = {each.inode for each in listening_sockets(system) if each.port == port}
    pid = min(socket_owners(inodes, system).values(), default=0)
    return f"{_program(pid, system)} (process {pid})" if pid else ""


def _program(pid: int, system: System) -> str:
    return (system.read(f"/proc/{pid}/comm") or "").strip()


def _listening(port: int, pid: int, system: System) -> Listening:
    group = _GROUP.search(system.read(f"/proc/{pid}/cgroup") or "") if pid else None
    return Listening(port, pid, _program(pid, system) if pid else "", group[1] if group else "")


def send_requests(server: str, given: Requests, system: System, probe: Prober = probe_server) -> Responses:
    """Return the responses of a server. After a first request without a response, no further request is sent."""
    health = _request(given.health_url, "", system)
    if _NO_RESPONSE in health:
        return Responses(health=health)
    key = _key(given.key_file, system)
    header = "" if key is None else f"Authorization: Bearer {key}\n"
    keyless = _request(given.keyless_url, "", system) if given.keyless_url else ""
    models = _request(given.models_url, header, system)
    props = {server: _request(given.props_url, header, system)} if given.props_url else {}
    if sleeps(props.get(server, "").rpartition("\n")[0]):
        # This request loads the model. The probes below have no time for that.
        _request(urljoin(given.props_url, "slots"), header, system, seconds=given.chat_seconds)
    chats, probes = {}, {}
    for each in given.chats:
        if each.body:
            chats[each.name] = _request(each.url, header, system, each.body, given.chat_seconds)
        if each.props_url:
            props[each.name] = _request(each.props_url, header, system)
        if not each.body or chats[each.name].endswith(_SUCCEEDED):
            probes[each.name] = probe(each.question, key)
    return Responses(health, keyless, models, props, chats, probes)


def _key(key_file: str, system: System) -> str | None:
    """Return a server's key: an empty one where its file is missing, None where no key is declared."""
    return (system.read(key_file) or "").partition("\n")[0] if key_file else None


def _request(url: str, header: str, system: System, body: str = "", seconds: int = _REQUEST_SECONDS) -> str:
    """Return what curl prints: the body, its errors, and the status. The header comes on stdin, as argv is public.

    Use no configuration of root and no proxy: the request goes to this host.
    """
    limits = ("--max-time", str(seconds), "--max-filesize", str(MOST_BYTES), "--limit-rate", _RATE)
    posted = ("-H", "Content-Type: application/json", "--data-raw", body) if body else ()
    words = ("curl", "-q", "-sS", "-g", "--noproxy", "*", *limits, "-H", "@-", "-w", r"\n%{http_code}\n", *posted, url)
    ended = system.run(words, seconds=seconds + _SPARE, text=header)
    if ended.code == TIMED_OUT:
        return f"curl did not end within {seconds + _SPARE} s"
    content, _, status = ended.out.rstrip("\n").rpartition("\n")
    if len(content) > MOST_BYTES:
        return f"the response has more than {MOST_BYTES} bytes"
    return "\n".join([content, *ended.err.splitlines(), status])


def find_gpus(system: System) -> GpusFound:
    """Return what the driver reports of GPUs and of the processes that use them."""
    return GpusFound(
        listed=_smi(("--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"), system),
        processes=_smi(("--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv,noheader,nounits"), system),
        minors=dict(_minors(system)),
        namespace=system.target("/proc/self/ns/pid"),
        kernel=(system.read("/proc/sys/kernel/osrelease") or "").strip(),
    )


def find_gpu_processes(pid: str, system: System, *, swaps: bool, container: bool) -> GpuProcesses:
    """Return the processes of a server, by its first one, and the devices of GPUs that they hold open.

    The processes of a container are those of its PID namespace. A server that swaps runs each model in a child.
    """
    pids: Sequence[str] = [pid] if pid else []
    if pid and container:
        pids = _in_namespace_of(pid, system) or pids
    elif pid and swaps:
        pids = [pid, *_children(pid, system)]
    there = [each for each in pids if system.entry(f"/proc/{each}")]
    return GpuProcesses(tuple(there), tuple(sorted({*_devices(there, system)})[:_MOST_DEVICES]))


def _smi(words: Iterable[str], system: System) -> str:
    ended = system.run(["nvidia-smi", *words], seconds=_GPU_SECONDS)
    return (ended.out + ended.err).strip("\n")


def _minors(system: System) -> Iterator[tuple[str, int]]:
    for address in system.names(_DRIVER):
        found = _MINOR.search(system.read(f"{_DRIVER}/{address}/information") or "")
        if found:
            yield address.lower(), int(found[1])


def _in_namespace_of(pid: str, system: System) -> list[str]:
    space = system.target(f"/proc/{pid}/ns/pid")
    every = [name for name in system.names("/proc") if name.isdecimal()] if space else []
    return [each for each in every if system.target(f"/proc/{each}/ns/pid") == space]


def _children(pid: str, system: System) -> list[str]:
    tasks = system.names(f"/proc/{pid}/task")
    return [each for task in tasks for each in (system.read(f"/proc/{pid}/task/{task}/children") or "").split()]


def _devices(pids: Iterable[str], system: System) -> Iterator[str]:
    for pid in pids:
        for handle in system.names(f"/proc/{pid}/fd"):
            target = system.target(f"/proc/{pid}/fd/{handle}")
            if _DEVICE.fullmatch(target):
                yield target


@dataclass(frozen=True)
class DockerFound:
    """The state of Docker: containers by instance, images by tag, and ports that running containers publish."""

    containers: Mapping[str, ContainerFound] = field(default_factory=dict)
    images: Mapping[str, ImageFound] = field(default_factory=dict)
    published: tuple[str, ...] = ()


def find_docker(given: VerifyServersInput, system: System) -> DockerFound:
    """Return containers and images of servers. Raise UnknownStateError if Docker runs and does not respond."""
    planned = {each.name: each.service for each in given.servers if not each.unit}
    containers = {name: _container(service, given.limits, system) for name, service in planned.items()}
    images = {each.tag: _image(each, system) for each in given.images}
    return DockerFound(
        {name: found for name, found in containers.items() if found},
        images,
        _published(system),
    )


def _container(service: str, limits: Sequence[str], system: System) -> ContainerFound | None:
    ended = query_docker(system, "inspect", "--type", "container", "--format", _CONTAINER, service)
    if not ended.ok:
        return None
    try:
        return _read_container(json.loads(ended.out), limits)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UnknownStateError("Docker") from None


def _read_container(shown: Mapping[str, Any], limits: Sequence[str]) -> ContainerFound:
    """Return a container by a line in our format. Raise ValueError, LookupError, TypeError or AttributeError."""
    host, labels = shown["HostConfig"], shown["Labels"] or {}
    return ContainerFound(
        status=str(shown["Status"]),
        health=str(shown["Health"]),
        restart=str(host["RestartPolicy"]["Name"]),
        spec=str(labels.get("llamaherd.spec", "")),
        pid=str(int(shown["Pid"]) or ""),
        image=str(shown["Image"]),
        config_files=str(labels.get("com.docker.compose.project.config_files", "")),
        user=str(shown["User"]),
        limits=set_limits(host, limits),
        mounts=tuple(
            Mount(str(each["Source"]), bool(each["RW"])) for each in shown["Mounts"] or () if each["Type"] == "bind"
        ),
        privileged=bool(host["Privileged"]),
        read_only=bool(host["ReadonlyRootfs"]),
        network=str(host["NetworkMode"]),
        pid_mode=str(host["PidMode"]),
        ipc_mode=str(host["IpcMode"]),
        added=tuple(map(str, host["CapAdd"] or ())),
        dropped=tuple(map(str, host["CapDrop"] or ())),
        security=tuple(map(str, host["SecurityOpt"] or ())),
    )


def _image(planned: PlannedImage, system: System) -> ImageFound:
    ended = query_docker(system, "image", "inspect", "--format", _IMAGE, planned.tag)
    made = (system.read(planned.record) or "").strip()
    if not ended.ok:
        return ImageFound("", 0, made)
    try:
        shown = json.loads(ended.out)
        return ImageFound(str(shown["Id"]), int(shown["Size"]), made)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise UnknownStateError("Docker") from None


def _published(system: System) -> tuple[str, ...]:
    if system.entry(_SOCKET) is None:
        return ()
    lines = query_docker(system, "ps", "--format", _PUBLISHED).out.splitlines()
    return tuple(lines[:_MOST_PUBLISHED])


def verify(given: VerifyServersInput, system: System, probe: Prober = probe_server) -> VerifiedServers:
    """Return the state of servers, queried one after another: at the same time, they would disturb measurements."""
    unknown: set[str] = set()
    no_units: dict[str, UnitFound] = {}
    units = _unless_unknown(lambda: _find_units(given, system), no_units, unknown)
    enabled = _unless_unknown(lambda: _docker_enabled(given, system), "", unknown)
    docker = _unless_unknown(lambda: find_docker(given, system), DockerFound(), unknown)
    servers = {each.name: _find_server(each, units, docker, system, probe) for each in given.servers}
    return VerifiedServers(
        # This follows the chats: after them, servers hold all the GPU memory that they need.
        servers={each.name: _with_gpus(each, servers[each.name], system) for each in given.servers},
        images=docker.images,
        docker_enabled=enabled,
        listening=find_listening(system),
        published=docker.published,
        gpus=find_gpus(system) if any(each.has_gpus for each in given.servers) else GpusFound(),
        unknown=tuple(sorted(unknown)),
    )


def _unless_unknown(find: Callable[[], Value], otherwise: Value, unknown: set[str]) -> Value:
    """Return the result; if a part of the host does not respond, add its name and return the other value."""
    try:
        return find()
    except UnknownStateError as error:
        unknown.add(error.part)
        return otherwise


def _find_units(given: VerifyServersInput, system: System) -> dict[str, UnitFound]:
    """Return units by instance, without units that systemd has not loaded."""
    shown = {
        each.name: show_units([f"{each.service}.service"], _PROPERTIES, system) for each in given.servers if each.unit
    }
    services = {each.name: each.service for each in given.servers}
    # systemd shows a unit with an alias by its own name.
    return {name: _unit(services[name], values, system) for name, by_id in shown.items() for values in by_id.values()}


def _unit(service: str, shown: Mapping[str, str], system: System) -> UnitFound:
    paths = [path for path in re.split(" (?=/)", shown.get("DropInPaths", "")) if path]
    others = [path for path in paths if f"/{service}.service.d/" not in path]
    shared = {path: keys for path in others if (keys := _deciding_keys(system.read(path) or ""))}
    return UnitFound(
        active=shown.get("ActiveState", ""),
        enabled=shown.get("UnitFileState", ""),
        result=shown.get("Result", ""),
        file=shown.get("FragmentPath", ""),
        drop_ins=tuple(path for path in paths if path not in others),
        needs_reload=shown.get("NeedDaemonReload") == "yes",
        pid="" if shown.get("MainPID") == "0" else shown.get("MainPID", ""),
        shared=shared,
    )


def _deciding_keys(text: str) -> str:
    """Return the keys of a drop-in that set the program or its user."""
    lines = [line for line in text.splitlines() if _DECIDING.match(line)]
    return " ".join(sorted({line.partition("=")[0].strip() for line in lines}))


def _docker_enabled(given: VerifyServersInput, system: System) -> str:
    """Return whether Docker starts at boot, as systemd reports it."""
    if all(each.unit for each in given.servers):
        return ""
    return query_systemctl(system, "is-enabled", "docker.service").out.strip()


def _find_server(
    planned: PlannedServer, units: Mapping[str, UnitFound], docker: DockerFound, system: System, probe: Prober
) -> ServerFound:
    unit, container = units.get(planned.name), docker.containers.get(planned.name)
    runs = unit or container
    process = _find_process(planned, runs.pid, system) if runs and runs.pid else None
    if process is None and (left := left_of(planned.service, system)) is not None:
        digest = system.digest([planned.file]) if resolve(planned.file, system) else ""
        return ServerFound(digest, unit, container, holder=find_holder(planned.port, system), pause_left=left)
    return ServerFound(
        file_sha256=system.digest([planned.file]) if resolve(planned.file, system) else "",
        unit=unit,
        container=container,
        process=process,
        holder="" if process else find_holder(planned.port, system),
        access={path: why for path in planned.reads if (why := _access(planned.user, path, system))},
        runs_program=not planned.program or _may(planned.user, "-x", planned.program, system) != "closed",
        owned=tuple(_owned(planned.owned, system)),
        responses=send_requests(planned.name, planned.requests, system, probe),
    )


def _find_process(planned: PlannedServer, pid: str, system: System) -> ProcessFound | None:
    """Return the process of a server: the binary that it was started from, and what it was started with."""
    words = (system.read(f"/proc/{pid}/cmdline") or "").removesuffix("\0").split("\0")
    if words == [""]:
        return None
    status = dict(
        line.split(":\t", 1) for line in (system.read(f"/proc/{pid}/status") or "").split("\n") if ":\t" in line
    )
    variables = (system.read(f"/proc/{pid}/environ") or "").split("\0")
    return ProcessFound(
        sha256=system.digest([f"/proc/{pid}/exe"]),
        spec=next((each.removeprefix(_SPEC) for each in variables if each.startswith(_SPEC)), ""),
        uid=next(iter(status.get("Uid", "").split()), ""),
        account=system.run(["id", "-u", planned.user]).out.strip() if planned.unit else "",
        stopped=status.get("State", "").startswith("T "),
        argv=tuple(words[-_MOST_WORDS:]),
        variables=_other_variables(variables, planned),
    )


def _other_variables(has: Sequence[str], planned: PlannedServer) -> tuple[str, ...]:
    """Return names of variables of a process that differ from the declared ones or are not allowed."""
    declared = {each.partition("=")[0] for each in planned.variables}
    names = {each.partition("=")[0] for each in {*planned.variables} - {*has}}
    if planned.strange_variables:
        others = {each.partition("=")[0] for each in has} - declared
        names |= {name for name in others if re.search(planned.strange_variables, name)}
    return tuple(sorted(names)[:_MOST_NAMES])


def _access(user: str, path: str, system: System) -> Access | None:
    """Return why a user cannot read a file; None if it can."""
    return "absent" if resolve(path, system) is None else _may(user, "-r", path, system)


def _may(user: str, how: str, path: str, system: System) -> Access | None:
    """Try an operation on a file as a user. Return why it fails: modes alone do not show closed folders."""
    words = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "test", how, path)
    code = system.run(words, seconds=_DISK_SECONDS).code
    return None if code == 0 else "silent" if code == TIMED_OUT else "closed"


def _owned(paths: Collection[str], system: System) -> Iterator[OwnedFile]:
    """Yield the owners of files and of all files in folders, without manifests of folders."""
    every = (each for path in paths for each in _below(path, system))
    for path, found in islice(every, _MOST_FILES):
        if not path.rpartition("/")[2].startswith(".manifest"):
            yield OwnedFile(as_text(path), found.kind, found.mode, found.owner)


def _below(path: str, system: System) -> Iterator[tuple[str, Entry]]:
    found = system.entry(path)
    if found:
        yield path, found
    if found and found.kind == "folder":
        yield from system.tree(path)


def _with_gpus(planned: PlannedServer, found: ServerFound, system: System) -> ServerFound:
    """Return a server with its processes on GPUs, if GPUs are planned for it."""
    runs = found.unit or found.container
    if not planned.has_gpus or runs is None:
        return found
    processes = find_gpu_processes(runs.pid, system, swaps=planned.swaps, container=not planned.unit)
    return replace(found, on_gpus=processes)


VERBS = {"verify": Verb(VerifyServersInput, verify)}
