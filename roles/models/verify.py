"""Which models are there. That each file has its size, each server's check tells."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import stored_files
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from llamaherd.role.report import Installed
from llamaherd.role.role import Judging, Verified
from llamaherd.text.units import show_size


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the files of every model."""
    for model in plan.models:
        files = ("find", model.folder, "-type", "f", "!", "-name", ".manifest", "-printf", r"%s\t%P\n")
        yield Probe("model", model.folder, files)


def judge(judging: Judging) -> Verified:
    """What is in the store."""
    there = [(model, stored_files(model.folder, judging.answers)) for model in judging.plan.models]
    return Verified(
        installed=tuple(
            Installed(f"model {model.name} ({show_size(sum(files.values()))})", model.folder)
            for model, files in there
            if files
        )
    )
