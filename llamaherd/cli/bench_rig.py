"""`herd bench RIG`: which instances are measured, and how that is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from llamaherd.cli.common import KEPT, UNUSABLE, fail, say, usable_plans
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.bench.courses.chosen import Chosen
    from llamaherd.bench.job import Aside, Job, Measured
    from llamaherd.inventory.schema import Connect
    from llamaherd.plan import InstancePlan, Plan


def jobs(inventory: Path, rig: str, name: str | None, results: Path, seconds: int, *, anyway: bool) -> list[Job]:
    """A measurement for each instance that is meant; the program ends where none is."""
    declared, plan = usable_plans(inventory, (rig,))[rig]
    server, instances = _chosen(plan, name)
    aside = _aside(inventory, plan, server)
    return [
        _job(declared.connect, plan, server, each, results, seconds, anyway=anyway, aside=aside) for each in instances
    ]


def _chosen(plan: Plan, name: str | None) -> tuple[InstancePlan, tuple[InstancePlan, ...]]:
    """The server that is named, or the only one, and the instances of it that are meant: of a group all, or one."""
    from llamaherd.plan.loaded import instances_of, not_one

    found = [(server, instances_of(server)) for server in plan.instances]
    if name is not None:
        found = [(server, tuple(each for each in every if name in (server.name, each.name))) for server, every in found]
    meant = [(server, every) for server, every in found if every]
    if len(meant) != 1:
        fail(not_one(plan, name), UNUSABLE)
    return meant[0]


def _job(
    connect: Connect,
    plan: Plan,
    server: InstancePlan,
    instance: InstancePlan,
    results: Path,
    seconds: int,
    *,
    anyway: bool,
    aside: Aside,
) -> Job:
    import getpass
    import socket

    from llamaherd.bench.job import Job

    who = f"{getpass.getuser()} on {socket.gethostname()}"
    group = server if server.members else None
    return Job(connect, plan, instance, results, float(seconds), who, anyway, aside, group)


def _aside(inventory: Path, plan: Plan, server: InstancePlan) -> Aside:
    from llamaherd.gateway.aside import measured_aside

    return lambda tell: measured_aside(inventory, plan, (server,), tell, wait=server.drain)


def measured_one_by_one(found: list[Job], wanted: Chosen) -> Iterator[Measured]:
    """Each measurement as soon as it is over; the program ends at one that there is not."""
    for job in found:
        yield _measured(job, wanted)


def _measured(job: Job, wanted: Chosen) -> Measured:
    """The measurement; the program ends where there is none."""
    from llamaherd.bench.conductor import measure
    from llamaherd.bench.courses.quick import quick
    from llamaherd.bench.job import InTheWayError
    from llamaherd.cli.bench_progress import telling

    of_group = f" of group {job.group.name}" if job.group else ""
    say(f"measuring {job.plan.rig}/{job.instance.name}{of_group}, for up to {_minutes(job.seconds)}", err=True)
    try:
        with telling(f"{job.plan.rig}/{job.instance.name}") as teller:
            return measure(job, lambda known: (quick(known), *wanted.series(known)), teller, wanted)
    except InTheWayError as error:
        for each in error.obstacles:
            say(f"error: {each.code}: {each.message}" + (f"\n  help: {each.help}" if each.help else ""), err=True)
        say("`--anyway` measures what can be measured nevertheless", err=True)
    except UserError as error:
        say(f"error: {error}", err=True)
    except KeyboardInterrupt:
        say(KEPT, err=True)
        raise
    sys.exit(UNUSABLE)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
