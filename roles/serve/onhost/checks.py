"""What is checked before anything is stopped: the engine's arguments, a container's file and image, and free memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from llamaherd.onhost.clients import docker
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, FailedError, System
from roles.serve.onhost.backends import backend_of, other_kind, processes
from roles.serve.onhost.model import ArgumentCheck, ContainerCheck, Server, SwitchInput
from roles.serve.onhost.tools import Tools

_ARGUMENT_SECONDS, _CONTAINER_SECONDS = 20, 60
_NOT_RUN = (TIMED_OUT, 126, NOT_STARTED, 137, -9)
_LINE = 300
_MOST_FILE = 4 << 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_unchanged(system: System, server: Server, unchanged: Mapping[str, str]) -> None:
    """Raise FailedError where a file that is not written differs from what was inspected: another run changed it."""
    for path, sha256 in unchanged.items():
        text = system.read(path, _MOST_FILE)
        if text is None or hashlib.sha256(text.encode()).hexdigest() != sha256:
            raise FailedError(
                f"another run has changed {server.service} since it was inspected, so it was left as it was",
                "run `herd up` again",
            )


def check_arguments(system: System, server: Server, check: ArgumentCheck) -> None:
    """Raise FailedError where the built engine does not accept its arguments.

    It reads them all before `--version` ends it; one that swallows `--version` would start the server.
    """
    # Any file does for a key: this one needs no room on a disk.
    arguments = ["/proc/version" if each == server.key_file else each for each in check.arguments]
    as_user = ["setpriv", "--reuid", check.user, "--regid", check.user, "--clear-groups", "--no-new-privs"]
    alone = ["env", "-i", f"PATH={_PATH}", "XDG_CONFIG_HOME=/nonexistent"]
    ended = system.run([*as_user, *alone, check.program, *arguments, "--version"], seconds=_ARGUMENT_SECONDS)
    printed = [line[:_LINE] for line in (ended.out + ended.err).splitlines()]
    if ended.code in _NOT_RUN:
        raise FailedError(
            f"instance {server.name}: {check.program} --version did not end by itself within {_ARGUMENT_SECONDS} s, "
            f"or could not be run (exit code {ended.code}), so its arguments are not checked; "
            "the instance was left as it was",
            log=printed[-3:],
        )
    if not ended.ok or not any(line.startswith("version:") for line in printed):
        errors = [line for line in printed if "error" in line.lower()][:5]
        raise FailedError(
            f"instance {server.name}: {check.program} does not accept its arguments; the instance was left as it was",
            log=errors or printed[-3:],
        )


def check_container(system: System, server: Server, check: ContainerCheck) -> None:
    """Raise FailedError where Docker does not take the new Compose file, its image or its arguments."""
    folder = f"/run/llamaherd/trial-{server.name}"
    try:
        system.folder(folder, mode=0o700)
        system.write(f"{folder}/compose.yaml", check.text)
        _check_container(system, server, check, folder)
    finally:
        system.remove(folder)


def _check_container(system: System, server: Server, check: ContainerCheck, folder: str) -> None:
    ended = docker(system, "compose", "-f", f"{folder}/compose.yaml", "config", "-q")
    if not ended.ok:
        raise _left(server, "Compose does not take its file", ended.out + ended.err)
    if not docker(system, "image", "inspect", check.image).ok:
        if not check.pulled:
            raise _left(server, f"its image {check.image} is not there", "")
        system.report(f"fetching {check.image}")
        pulled = docker(system, "pull", "-q", check.image)
        if not pulled.ok:
            raise _left(server, "its image cannot be fetched", pulled.out + pulled.err)
    if check.reads_arguments:
        _check_image_arguments(system, server, check, folder)


def _left(server: Server, why: str, printed: str) -> FailedError:
    last = [line[:_LINE] for line in printed.splitlines()][-5:]
    return FailedError(f"instance {server.name}: {why}; the instance was left as it was", log=last)


def _check_image_arguments(system: System, server: Server, check: ContainerCheck, folder: str) -> None:
    """Raise FailedError where an image's engine refuses its arguments. Without a GPU it may not read them."""
    name = f"llamaherd-trial-{server.name}"
    system.write(f"{folder}/key", "placeholder\n", mode=0o644)
    mounts = [word for each in check.folders for word in ("-v", f"{each}:{each}:ro")]
    if check.key_file:
        mounts += ["-v", f"{folder}/key:{check.key_file}:ro"]
    variables = [word for each, value in check.environment.items() for word in ("-e", f"{each}={value}")]
    walls = ["--pull", "never", "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    words = ["docker", "run", "--rm", "--name", name, *walls, "--security-opt", "no-new-privileges"]
    words += ["--user", f"{check.user}:{check.user}", *mounts, *variables, check.image, *check.arguments, "--version"]
    ended = system.run(words, seconds=_CONTAINER_SECONDS)
    docker(system, "rm", "-f", name)
    printed = (ended.out + ended.err).splitlines()
    errors = [line for line in printed if line.lower().startswith("error") and "argument" in line.lower()]
    if not ended.ok and errors:
        raise _left(server, f"{check.image} does not accept its arguments", "\n".join(errors))


def check_room(system: System, given: SwitchInput, tools: Tools) -> None:
    """Raise FailedError where a GPU or RAM has no room once what is to be stopped has ended."""
    server = given.server
    leaving = [pid for service in given.leaving for pid in processes(system, service)]
    if given.needs_gpus:
        own = processes(system, server.service)
        if lacking := tools.lacks_gpus(system, given.needs_gpus, (*own, *leaving)):
            raise FailedError(
                f"{server.service} is left as it is: {lacking}",
                "end what else uses that GPU, or declare what fits beside it",
            )
    if given.needs_ram:
        own, others = _by_kind(system, server)
        if lacking := tools.lacks_ram(system, given.needs_ram, own, (*others, *leaving)):
            raise FailedError(
                f"{server.service} is left as it is: {lacking}",
                "end what else holds RAM, or declare what fits beside it",
            )


def _by_kind(system: System, server: Server) -> tuple[tuple[str, ...], tuple[str, ...]]:
    own = backend_of(server.kind, system).processes(server.service)
    return own, backend_of(other_kind(server.kind), system).processes(server.service)
