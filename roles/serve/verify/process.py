"""Whether an instance's unit or container, its process and its files are those that were planned."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from llamaherd.host.answers import Answers, manifest, mapping, stored_files
from llamaherd.plan import BuildPlan, InstancePlan, Plan
from llamaherd.role.report import Check, Installed
from llamaherd.text.units import show_size
from roles.serve.onhost.verified import Found, ServerFound, UnitFound
from roles.serve.verify.container import strange_container
from roles.serve.verify.permissions import permissions


def serving(planned: InstancePlan, server: ServerFound, found: Found) -> Check:
    """Up, and up again after the host has been switched off and on."""
    if planned.backend == "systemd":
        return _unit(planned, server, found)
    return _container(planned, server, found)


def _unit(planned: InstancePlan, server: ServerFound, found: Found) -> Check:
    name, unit = f"{planned.service}.service", server.unit
    if unit is None and "systemd" in found.unknown:
        return Check("unit", False, f"systemd did not respond, so the state of {name} is unknown: run again")
    if unit is None:
        return Check("unit", False, f"{name} is unknown to systemd, not there")
    detail = f"{name} is {unit.active or 'unknown to systemd'}, {unit.enabled or 'not there'}"
    detail += f" ({unit.result})" if unit.result not in ("", "success") else ""
    strange = _not_ours(planned, unit) or "; ".join(f"{path} sets {keys} for it" for path, keys in unit.shared.items())
    right = (unit.active, unit.enabled) == ("active", "enabled") and not strange
    return Check("unit", right, f"{detail}; {strange}" if strange else detail)


def _container(planned: InstancePlan, server: ServerFound, found: Found) -> Check:
    name, container = planned.service, server.container
    if container is None and "Docker" in found.unknown:
        return Check("container", False, f"Docker did not respond, so the state of {name} is unknown: run again")
    if container is None:
        return Check("container", False, f"there is no container {name}")
    restart, docker = container.restart or "no", found.docker_enabled or "not there"
    up = (container.status, container.health) == ("running", "healthy")
    stays = restart in {"always", "unless-stopped"} and docker == "enabled"
    detail = f"{name} is {container.status}, {container.health or 'without a health check'}"
    if up and not stays:
        detail += f", but restart is `{restart}` and docker.service {docker}"
    differ = list(strange_container(planned, container, found.images.get(planned.server.image or ""))) if up else []
    return Check("container", up and stays and not differ, "; ".join([detail, *differ]))


def _not_ours(planned: InstancePlan, unit: UnitFound) -> str:
    """What others wrote for a unit, and what systemd has not read yet."""
    if unit.drop_ins:
        return f"{', '.join(unit.drop_ins)} changes it, and is not declared: `herd up` sets that aside"
    if unit.file not in ("", planned.file.path):
        return f"it is defined by {unit.file}"
    return "its file has changed since systemd read it: `herd up`" if unit.needs_reload else ""


def process(planned: InstancePlan, server: ServerFound, found: Found, answers: Answers) -> Check:
    """What runs now, read from the process itself: the binary, its arguments and the spec it was started with."""
    runs, manager = server.process, "systemd" if planned.backend == "systemd" else "Docker"
    if runs is None and server.unit is None and server.container is None and manager in found.unknown:
        return Check("process", False, f"{manager} did not respond, so it is unknown whether one runs: run again")
    if runs is None:
        taken = f", and port {planned.endpoint.port} is held by {server.holder}" if server.holder else ""
        return Check("process", False, f"no process runs{taken}")
    problems = []
    if runs.stopped:
        problems.append("it is stopped (SIGSTOP), and answers nobody: `herd up` starts it anew")
    spec = server.container.spec if server.container else runs.spec
    if spec != planned.spec:
        problems.append(f"it runs spec {spec or 'none'}, declared is {planned.spec}: `herd up`")
    # What comes before is the program, and for a pulled image whatever its entrypoint has.
    if (arguments := runs.argv[-len(planned.server.arguments) :]) != planned.server.arguments:
        differ = [f"`{value}`" for value in arguments if value not in planned.server.arguments] or ["their order"]
        problems.append(f"its arguments are not the declared ones: {' '.join(differ)}")
    if runs.account not in ("", runs.uid):
        problems.append(f"it runs as user {runs.uid}, {planned.server.user} is {runs.account}: `herd up`")
    if runs.variables:
        problems.append(f"it has other variables than the declared ones: {', '.join(runs.variables)}: `herd up`")
    if planned.build:
        built = mapping(manifest(planned.build, answers).get("sha256")).get("llama-server")
        if runs.sha256 != built:
            problems.append(f"its binary (sha256 {runs.sha256[:12]}…) is not the one of {planned.build}")
    return Check("process", not problems, "; ".join(problems) or f"runs spec {planned.spec}")


def in_place(
    planned: InstancePlan, build: BuildPlan | None, plan: Plan, server: ServerFound, answers: Answers
) -> Check:
    """The files that it would start from the next time."""
    problems = []
    if build and manifest(build.id, answers).get("id") != build.id:
        problems.append(f"{build.folder} holds no finished build")
    if build:
        problems += _replaced(build, answers)
    problems += _unreadable(planned, server)
    problems += permissions(planned, server.owned)
    if server.file_sha256 != hashlib.sha256(planned.file.text.encode()).hexdigest():
        there = "not as planned: `herd up`" if server.file_sha256 else "not there"
        problems.append(f"{planned.file.path} is {there}")
    for model in plan.models:
        stored = stored_files(model.folder, answers)
        for file in model.files if model.folder in planned.server.folders else ():
            if file.name not in stored:
                problems.append(f"{PurePosixPath(model.folder, file.name)} is not there")
            elif file.size not in (None, stored[file.name]):
                problems.append(f"{file.name} has {stored[file.name]} bytes, the lock says {file.size}")
    return Check("files", not problems, "; ".join(problems) or "engine, model and definition are in place")


def _unreadable(planned: InstancePlan, server: ServerFound) -> Iterator[str]:
    """Yield files that a server's user cannot read or run."""
    for path in planned.reads:
        match server.access.get(path):
            case "absent":
                yield f"there is no {path}"
            case "closed":
                yield f"its user may not read {path}"
            case "silent":
                yield f"the disk of {path} did not respond: run again"
    if not server.runs_program:
        yield f"its user may not run {planned.server.program}"


def _replaced(build: BuildPlan, answers: Answers) -> list[str]:
    """Programs that are there, and are not what was built."""
    built = mapping(manifest(build.id, answers).get("sha256"))
    folder = f"{build.folder}/bin/"
    lines = answers.get(("programs", build.id), "").split("\n")
    hashes = ((path.removeprefix(folder), sha256) for sha256, blank, path in (each.partition("  ") for each in lines))
    return [
        f"{build.folder}/bin/{name} is {'not what' if name in built else 'no part of what'} was built: `herd up`"
        for name, sha256 in hashes
        if name and built.get(name) != sha256
    ]


def installed(plan: Plan, found: Found) -> Iterator[Installed]:
    """Images, units and projects that are there."""
    for image in plan.images:
        if (there := found.images.get(image.tag)) and there.id:
            yield Installed(f"image {image.tag} ({show_size(there.size)})", "Docker's store")
    for instance in plan.instances:
        if found.servers.get(instance.name, ServerFound()).file_sha256:
            kind = "unit" if instance.backend == "systemd" else "compose project"
            yield Installed(f"{kind} {instance.service}", instance.file.path)
