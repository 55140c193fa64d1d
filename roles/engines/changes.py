"""Engines: a build that is finished is never made again, and one that is not is never taken for finished."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.host.state import HostState
from llamaherd.host.totals import BUILD_SECONDS, show_limit
from llamaherd.layout import BUILD_PATH, BUILD_USER, CACHE, SET_ASIDE
from llamaherd.plan import BuildPlan, Plan
from llamaherd.render import render
from llamaherd.role.changes import Change, RunScript, SendFile
from llamaherd.role.refusal import Need
from llamaherd.text.quoting import base64_lines

_WHY = {
    None: "it is not built",
    "building": "it is being built",
    "built": "it is built, and not let in yet",
    "damaged": "a program of it is not what was built",
}
"""By the stage that a host tells."""


def build_changes(build: BuildPlan, state: HostState) -> list[Change]:
    """Send the source, if it is here; build, or join a build that runs, or let in one that has ended."""
    stage = state.builds.get(build.id)
    if stage == "done":
        return []
    if stage == "intact":
        why = ("something is new about its files, whose content is as it was built",)
        return [
            Change("update", "build", build.id, why, RunScript(render("engines/vouch.sh.j2", b=build, aside=SET_ASIDE)))
        ]
    changes = []
    archive, sha256 = build.source.local_archive, build.source.sha256
    if stage in (None, "damaged") and archive and sha256 and sha256 not in state.sources:
        admit = RunScript(render("engines/admit-source.sh.j2", sha256=sha256, user=BUILD_USER))
        send = SendFile(archive, sha256, (CACHE / "sources" / sha256,))
        why = (f"the host has no source with sha256 {sha256}",)
        changes += [Change("send", "source", archive.name, why, how) for how in (send, admit)]
    script = render(
        "engines/build.sh.j2",
        b=build,
        user=BUILD_USER,
        script=base64_lines(build.script),
        path=BUILD_PATH,
        seconds=BUILD_SECONDS,
        limit=show_limit(BUILD_SECONDS),
    )
    how = RunScript(script, f"building {build.id}")
    return [*changes, Change("build", "engine", build.id, (_WHY.get(stage, str(stage)),), how)]


def source_sends(plan: Plan, state: HostState) -> list[SendFile]:
    """The sources of the controller's that a run would send."""
    hows = [change.how for build in plan.builds for change in build_changes(build, state)]
    return [how for how in hows if isinstance(how, SendFile)]


def build_needs(plan: Plan, state: HostState, _: Mapping[str, int]) -> list[Need]:
    """The room that builds in the making take; what is kept of one is small."""
    if state.free is None:
        return []
    folder, free, device = state.free
    need = sum(build.disk for build in plan.builds if state.builds.get(build.id) in (None, "damaged"))
    return [Need(folder, free, device, need)]
