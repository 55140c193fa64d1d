"""Which builds are there, by what each says of itself. That no program was replaced, each server's check tells."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import manifest
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.report import Installed
from llamaherd.role.role import Judging, Verified


def question(plan: Plan) -> str:
    """Ask for manifests, and have every program hashed."""
    return render("engines/verify.sh.j2", plan=plan) if plan.builds else ""


def judge(judging: Judging) -> Verified:
    """What is built."""
    return Verified(installed=tuple(_installed(judging)))


def _installed(judging: Judging) -> Iterator[Installed]:
    for build in judging.plan.builds:
        if said := manifest(build.id, judging.answers):
            version = str(said.get("version", "")).removeprefix("version: ")
            yield Installed(f"{build.kind} ({build.id}, {version}, {said.get('compiler')})", build.folder)
