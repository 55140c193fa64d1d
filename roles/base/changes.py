"""Whether a host can become as planned, and what every other role stands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from llamaherd.converge.disks import Refusal, disk_refusals
from llamaherd.converge.driver import driver_refusals
from llamaherd.converge.engines import build_steps
from llamaherd.converge.machine import machine_refusals
from llamaherd.converge.models import model_sends
from llamaherd.converge.power import power_refusals, power_removal_steps
from llamaherd.converge.programs import fingerprint, programs
from llamaherd.converge.runtime import runtime_refusals
from llamaherd.converge.steps import RunScript, SendFile, differs, put_files
from llamaherd.converge.toolkit import toolkit_refusals
from llamaherd.converge.wsl import starts_systemd, wsl_refusals
from llamaherd.host.state import HostState
from llamaherd.layout import BUILD_USER, BUILDERS_FOLDERS, FETCHER, INCOMING, KEYS, OURS
from llamaherd.plan import Plan
from llamaherd.text.quoting import Written
from llamaherd.text.render import render


def refusals(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> list[Refusal]:
    """What stands in the way, found before anything is changed. `local_sizes`: bytes by sha256."""
    problems = []
    if seen.os != plan.os:
        problems.append(
            Refusal(
                f"this host runs {seen.os}, the inventory says {plan.os}",
                "correct `host.os` in the inventory",
                "system",
            )
        )
    if not seen.systemd and not starts_systemd(plan, seen):
        problems.append(
            Refusal(
                "systemd does not run here, and builds and servers are its units",
                "boot with systemd; under WSL, where wsl.conf says so, `wsl --terminate NAME` in Windows and start it",
                "systemd",
            )
        )
    return [
        *problems,
        *_about("kind", wsl_refusals(plan, seen)),
        *_twins(plan, seen),
        *machine_refusals(plan, seen),
        *_about("power", power_refusals(plan, seen)),
        *disk_refusals(plan, seen, local_sizes),
        *_about("driver", driver_refusals(plan, seen)),
        *_about("CUDA toolkit", toolkit_refusals(plan, seen)),
        *_about("Docker", runtime_refusals(plan, seen)),
        *_about("ports", _ports_taken(plan, seen)),
    ]


def between_holders(plan: Plan, seen: HostState) -> bool:
    """Whether a planned port was seen as it passed from one holder to the next: another run works there just now."""

    def passing(port: int) -> bool:
        holder = seen.holders.get(port)
        return holder is None or (holder.program == DOCKERS_PROXY and not holder.container)

    return any(passing(port) for port in _strange(plan, seen))


def _twins(plan: Plan, seen: HostState) -> Iterator[Refusal]:
    """Which of both is to have another number is not for us to choose, and one that is in use cannot be changed."""
    for name, other in sorted(seen.twins.items()):
        if name in plan.accounts:
            yield Refusal(
                f"users {name} and {other} have one number on this host: each may do what the other may",
                f"give {name} a number of its own (`vipw`, or `userdel {name}` while its server is stopped: "
                "`herd up` makes it anew)",
            )


def _about(what: str, problems: Iterable[Refusal]) -> list[Refusal]:
    return [replace(problem, about=what) for problem in problems]


def sends(plan: Plan, seen: HostState) -> list[SendFile]:
    """The files of the controller that this run would send."""
    steps = [step for build in plan.builds for step in build_steps(build, seen)]
    return [*(step for step in steps if isinstance(step, SendFile)), *model_sends(plan, seen)]


def _strange(plan: Plan, seen: HostState) -> Iterator[int]:
    """Ports that are to be ours, and are listened at by nobody of ours."""
    # Ours is what one of our servers holds now, also one that this run will move or remove, and that is paused.
    ours = {unit.port for unit in seen.units.values() if unit.active in {"active", "activating", "deactivating"}}
    ours |= {container.port for container in seen.containers.values() if container.status in _HOLDING}
    for instance in plan.instances:
        holder = seen.holders.get(instance.endpoint.port)
        if holder and holder.container in seen.containers:
            continue
        if instance.endpoint.port in seen.listening and instance.endpoint.port not in ours:
            yield instance.endpoint.port


def _ports_taken(plan: Plan, seen: HostState) -> Iterator[Refusal]:
    strange = set(_strange(plan, seen))
    for instance in plan.instances:
        if instance.endpoint.port not in strange:
            continue
        holder = seen.holders.get(instance.endpoint.port)
        port = instance.endpoint.port
        who, help_ = "something else", f"see by what with `ss -ltnp 'sport = :{port}'` and stop that"
        if holder and holder.container:
            who, help_ = f"container {holder.container}", f"stop it (`docker stop {holder.container}`)"
        elif holder:
            who, help_ = f"{holder.program} (process {holder.pid})", "stop that program"
        yield Refusal(
            f"port {port}, which instance `{instance.name}` is to have, is taken by {who}",
            f"{help_}, or choose another port",
        )


DOCKERS_PROXY = "docker-proxy"
"""What holds a container's port before Docker calls the container running, and after it does."""

_HOLDING = frozenset({"running", "paused", "restarting", "removing"})
"""States of containers that hold their ports."""

_NO_SHELLS = ("", "/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/false", "/bin/false")


def strange_accounts(plan: Plan, seen: HostState) -> list[str]:
    """Users of ours that are not there, could log in, or are in groups of others."""
    there = {name: user for name, user in seen.users.items() if name in plan.accounts}
    strange = (
        name
        for name, user in there.items()
        if user.shell not in _NO_SHELLS or set(user.groups) - {name} or (user.groups and name in seen.passwords)
    )
    return [*strange, *(name for name in plan.accounts if name not in there)]


def strange_folders(seen: HostState) -> list[str]:
    """Folders of ours that are not there, that others may write to or cannot use, or that have another owner."""

    def right(path: str, mode: int, owner: str) -> bool:
        folder = seen.folders.get(path)
        return folder is not None and folder.mode == mode and owner in ("", folder.owner)

    return [path for path, wanted in OURS.items() if not right(path, *wanted)]


def base_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Accounts, folders, and the small files that all roles share; and what was ours and is not declared any more."""
    steps = []
    if strange_accounts(plan, seen) or strange_folders(seen):
        script = render(
            "steps/accounts.sh.j2",
            users=plan.accounts,
            build_user=BUILD_USER,
            folders=[path for path, (_, owner) in OURS.items() if owner == "root"],
            builders=BUILDERS_FOLDERS,
            incoming=INCOMING,
            keys=KEYS,
        )
        steps.append(RunScript(script))
    if seen.closed:
        steps.append(RunScript(render("steps/open.sh.j2", store=plan.store.path, paths=seen.closed)))
    if changed := [file for file in plan.files if differs(file, seen)]:
        steps.append(RunScript(render("steps/shared-files.sh.j2", put=put_files(changed))))
    if seen.fetcher != fingerprint():
        # All anew: a module that is left over from another version could be imported.
        put = Written(f"rm -rf {FETCHER}\n{put_files(programs())}")
        steps.append(RunScript(render("steps/shared-files.sh.j2", put=put)))
    return [*steps, *power_removal_steps(plan, seen)]
