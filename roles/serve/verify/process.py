"""Whether an instance's unit or container, its process and its files are those that were planned."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from llamaherd.host.answers import SIZE, Answers, manifest, mapping, pairs, stored_files
from llamaherd.plan import BuildPlan, InstancePlan, Plan
from llamaherd.role.report import Check, Installed
from llamaherd.text.units import show_size
from roles.serve.verify.container import strange_container
from roles.serve.verify.permissions import permissions


def serving(planned: InstancePlan, seen: Mapping[str, str], shared: str) -> Check:
    """Up, and up again after the host has been switched off and on."""
    if planned.backend == "systemd":
        name, place = "unit", f"{planned.service}.service"
        state, boot = seen.get("ActiveState", "unknown to systemd"), seen.get("UnitFileState") or "not there"
        up, stays = state == "active", boot == "enabled"
        why = seen.get("Result", "success")
        found = f"{place} is {state}, {boot}" + (f" ({why})" if why != "success" else "")
        if strange := _not_ours(planned, seen) or "; ".join(
            f"{each.strip()} for it" for each in shared.split("\n") if each
        ):
            up, found = False, f"{found}; {strange}"
    else:
        name, place = "container", planned.service
        state, health = seen.get("Status", "not there"), seen.get("Health") or "without a health check"
        restart, docker = seen.get("Restart", "no"), seen.get("Docker", "not there")
        up = (state, health) == ("running", "healthy")
        stays = restart in {"always", "unless-stopped"} and docker == "enabled"
        found = f"{place} is {state}, {health}" if state != "not there" else f"there is no container {place}"
        if up and not stays:
            found += f", but restart is `{restart}` and docker.service {docker}"
        if up and (differ := list(strange_container(planned, seen))):
            up, found = False, "; ".join([found, *differ])
    return Check(name, up and stays, found)


def _not_ours(planned: InstancePlan, seen: Mapping[str, str]) -> str:
    """What others wrote for a unit, and what systemd has not read yet."""
    own = f"/{planned.service}.service.d/"
    drop_ins = [f"/{path}" for path in seen.get("DropInPaths", "").removeprefix("/").split(" /") if own in f"/{path}"]
    if drop_ins:
        return f"{', '.join(drop_ins)} changes it, and is not declared: `herd up` sets that aside"
    if seen.get("FragmentPath") not in (None, "", planned.file.path):
        return f"it is defined by {seen['FragmentPath']}"
    return "its file has changed since systemd read it: `herd up`" if seen.get("NeedDaemonReload") == "yes" else ""


def process(planned: InstancePlan, answers: Answers) -> Check:
    """What runs now, read from the process itself: the binary, its arguments and the spec it was started with."""
    text = answers.get(("process", planned.name), "")
    seen = pairs(text)
    argv = [line.removeprefix("argv=") for line in text.split("\n") if line.startswith("argv=")]
    if not argv:
        holder = answers.get(("holder", planned.name), "").strip()
        taken = f", and port {planned.endpoint.port} is held by {holder}" if holder else ""
        return Check("process", False, f"no process runs{taken}")
    problems = []
    if seen.get("state") == "stopped":
        problems.append("it is stopped (SIGSTOP), and answers nobody: `herd up` starts it anew")
    serving = pairs(answers.get(("serving", planned.name), ""))
    spec = seen.get("spec") if planned.backend == "systemd" else serving.get("Spec")
    if spec != planned.spec:
        problems.append(f"it runs spec {spec or 'none'}, declared is {planned.spec}: `herd up`")
    # What comes before is the program, and for a pulled image whatever its entrypoint has.
    if (arguments := tuple(argv[-len(planned.server.arguments) :])) != planned.server.arguments:
        differ = [f"`{value}`" for value in arguments if value not in planned.server.arguments] or ["their order"]
        problems.append(f"its arguments are not the declared ones: {' '.join(differ)}")
    if seen.get("account") not in (None, "", seen.get("uid")):
        problems.append(f"it runs as user {seen.get('uid')}, {planned.server.user} is {seen.get('account')}: `herd up`")
    if names := answers.get(("variables", planned.name), "").split():
        problems.append(f"it has other variables than the declared ones: {', '.join(names)}: `herd up`")
    if planned.build:
        built = mapping(manifest(planned.build, answers).get("sha256")).get("llama-server")
        if seen.get("sha256") != built:
            problems.append(f"its binary (sha256 {str(seen.get('sha256'))[:12]}…) is not the one of {planned.build}")
    return Check("process", not problems, "; ".join(problems) or f"runs spec {planned.spec}")


def in_place(planned: InstancePlan, build: BuildPlan | None, plan: Plan, answers: Answers) -> Check:
    """The files that it would start from the next time."""
    problems = []
    if build and manifest(build.id, answers).get("id") != build.id:
        problems.append(f"{build.folder} holds no finished build")
    if build:
        problems += _replaced(build, answers)
    problems += [line for line in answers.get(("unreadable", planned.name), "").split("\n") if line]
    problems += permissions(planned, answers.get(("owners", planned.name), ""))
    definition = answers.get(("file", planned.name))
    if definition != hashlib.sha256(planned.file.text.encode()).hexdigest():
        problems.append(f"{planned.file.path} is {'not as planned: `herd up`' if definition else 'not there'}")
    for model in plan.models:
        stored = stored_files(model.folder, answers)
        for file in model.files if model.folder in planned.server.folders else ():
            if file.name not in stored:
                problems.append(f"{PurePosixPath(model.folder, file.name)} is not there")
            elif file.size not in (None, stored[file.name]):
                problems.append(f"{file.name} has {stored[file.name]} bytes, the lock says {file.size}")
    return Check("files", not problems, "; ".join(problems) or "engine, model and definition are in place")


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


def installed(plan: Plan, answers: Answers) -> Iterator[Installed]:
    """Images, units and projects that are there."""
    for image in plan.images:
        if SIZE.fullmatch(size := answers.get(("image", image.tag), "").strip()):
            yield Installed(f"image {image.tag} ({show_size(int(size))})", "Docker's store")
    for instance in plan.instances:
        if answers.get(("file", instance.name)):
            kind = "unit" if instance.backend == "systemd" else "compose project"
            yield Installed(f"{kind} {instance.service}", instance.file.path)
