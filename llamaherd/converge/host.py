"""Whether a host can become as planned, and what every other role stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from llamaherd.converge.disks import Problem, disk_problems
from llamaherd.converge.driver import driver_problems
from llamaherd.converge.engines import build_steps
from llamaherd.converge.machine import machine_problems
from llamaherd.converge.models import model_sends
from llamaherd.converge.power import power_problems, power_removal_steps
from llamaherd.converge.programs import fingerprint, programs
from llamaherd.converge.runtime import runtime_problems
from llamaherd.converge.steps import Send, Step, differs, put_files
from llamaherd.converge.toolkit import toolkit_problems
from llamaherd.converge.wsl import starts_systemd, wsl_problems
from llamaherd.layout import BUILD_USER, BUILDERS_FOLDERS, FETCHER, FOLDERS, INCOMING, KEYS, WORK
from llamaherd.observe import Seen
from llamaherd.planned import Plan
from llamaherd.render import render


def obstacles(plan: Plan, seen: Seen, local_sizes: Mapping[str, int]) -> list[Problem]:
    """What stands in the way, found before anything is changed. `local_sizes`: bytes by sha256."""
    problems = []
    if seen.os != plan.os:
        problems.append(
            Problem(
                f"this host runs {seen.os}, the inventory says {plan.os}",
                "correct `host.os` in the inventory",
                "system",
            )
        )
    if not seen.systemd and not starts_systemd(plan, seen):
        problems.append(
            Problem(
                "systemd does not run here, and builds and servers are its units",
                "boot with systemd; under WSL, where wsl.conf says so, `wsl --terminate NAME` in Windows and start it",
                "systemd",
            )
        )
    return [
        *problems,
        *_about("kind", wsl_problems(plan, seen)),
        *machine_problems(plan, seen),
        *_about("power", power_problems(plan, seen)),
        *disk_problems(plan, seen, local_sizes),
        *_about("driver", driver_problems(plan, seen)),
        *_about("CUDA toolkit", toolkit_problems(plan, seen)),
        *_about("Docker", runtime_problems(plan, seen)),
        *_about("ports", _ports_taken(plan, seen)),
    ]


def _about(what: str, problems: Iterable[Problem]) -> list[Problem]:
    return [replace(problem, about=what) for problem in problems]


def sends(plan: Plan, seen: Seen) -> list[Send]:
    """The files of the controller that this run would send."""
    steps = [step for build in plan.builds for step in build_steps(build, seen)]
    return [*(step for step in steps if isinstance(step, Send)), *model_sends(plan, seen)]


def _ports_taken(plan: Plan, seen: Seen) -> list[Problem]:
    # Ours is what one of our servers holds now, also one that this run will move or remove.
    ours = {unit.port for unit in seen.units.values() if unit.active in {"active", "activating", "deactivating"}}
    ours |= {container.port for container in seen.containers.values() if container.status == "running"}
    return [
        Problem(
            f"port {instance.port}, which instance `{instance.name}` is to have, is taken by something else",
            f"see by what with `ss -ltnp 'sport = :{instance.port}'` and stop that, or choose another port",
        )
        for instance in plan.instances
        if instance.port in seen.listening and instance.port not in ours
    ]


def base_steps(plan: Plan, seen: Seen) -> list[Step]:
    """Accounts, folders, and the small files that all roles share; and what was ours and is not declared any more."""
    steps = []
    if not set(plan.accounts) <= seen.users or not seen.folders:
        script = render(
            "steps/accounts.sh.j2",
            users=plan.accounts,
            build_user=BUILD_USER,
            folders=FOLDERS,
            builders=BUILDERS_FOLDERS,
            work=WORK,
            incoming=INCOMING,
            keys=KEYS,
        )
        steps.append(Step(script))
    if changed := [file for file in plan.files if differs(file, seen)]:
        steps.append(Step(put_files(changed)))
    if seen.fetcher != fingerprint():
        # All anew: a module that is left over from another version could be imported.
        steps.append(Step(f"rm -rf {FETCHER}\n{put_files(programs())}"))
    return [*steps, *power_removal_steps(plan, seen)]
