"""Which models are there. That each file has its size, each server's check tells."""

from __future__ import annotations

from llamaherd.host.answers import stored_files
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.report import Installed
from llamaherd.role.role import Judging, Verified
from llamaherd.text.units import show_size


def question(plan: Plan) -> str:
    """Ask for the files of every model."""
    return render("models/verify.sh.j2", plan=plan) if plan.models else ""


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
