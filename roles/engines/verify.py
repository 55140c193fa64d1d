"""Which builds are there, by what each says of itself. That no program was replaced, each server's check tells."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import manifest
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from llamaherd.role.report import Installed
from llamaherd.role.role import Judging, Verified


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of manifests, and of the hash of every program."""
    for build in plan.builds:
        yield Probe("build", build.id, ("cat", f"{build.folder}/manifest.json"))
        # It may take a while: programs have hundreds of MB.
        hashed = ("find", f"{build.folder}/bin", "-type", "f", "-exec", "sha256sum", "{}", "+")
        yield Probe("programs", build.id, hashed, seconds=600)


def judge(judging: Judging) -> Verified:
    """What is built."""
    return Verified(installed=tuple(_installed(judging)))


def _installed(judging: Judging) -> Iterator[Installed]:
    for build in judging.plan.builds:
        if said := manifest(build.id, judging.answers):
            version = str(said.get("version", "")).removeprefix("version: ")
            yield Installed(f"{build.kind} ({build.id}, {version}, {said.get('compiler')})", build.folder)
