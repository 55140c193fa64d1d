"""Engines: a build that is finished is never made again, and one that is not is never taken for finished."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.engines import DIALECTS
from llamaherd.host.state import HostState
from llamaherd.host.totals import BUILD_SECONDS, SOURCE_SECONDS
from llamaherd.layout import CACHE
from llamaherd.plan import BuildPlan, Plan
from llamaherd.role.changes import Change, RunVerb, SendFile
from llamaherd.role.refusal import Need
from roles.engines.onhost.builds import BuildInput, SourceFileInput, VouchInput
from roles.engines.onhost.compiling import CompileInput, SourceInput
from roles.engines.plan import nvcc_path

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
        return [Change("update", "build", build.id, why, RunVerb("engines.builds.vouch", VouchInput(build.id)))]
    changes = []
    archive, sha256 = build.source.local_archive, build.source.sha256
    if stage in (None, "damaged") and archive and sha256 and sha256 not in state.sources:
        admit = RunVerb("engines.builds.admit_source", SourceFileInput(sha256))
        send = SendFile(archive, sha256, (CACHE / "sources" / sha256,))
        why = (f"the host has no source with sha256 {sha256}",)
        changes += [Change("send", "source", archive.name, why, how) for how in (send, admit)]
    given = BuildInput(compile_input(build), BUILD_SECONDS)
    how = RunVerb("engines.builds.build", given, f"building {build.id}")
    return [*changes, Change("build", "engine", build.id, (_WHY.get(stage, str(stage)),), how)]


def compile_input(build: BuildPlan) -> CompileInput:
    """Return a build as the program on hosts compiles it."""
    dialect, source = DIALECTS[build.kind], build.source
    sent = source.local_archive
    return CompileInput(
        id=build.id,
        kind=build.kind,
        source=SourceInput(
            git=source.git or "",
            commit=source.commit or "",
            archive=sent.name if sent else source.archive or "",
            is_sent=sent is not None,
            sha256=source.sha256 or "",
            folder=source.folder,
            overlay=source.overlay,
            seconds=SOURCE_SECONDS,
        ),
        options=build.options,
        targets=build.targets,
        bytes_per_job=dialect.bytes_per_job * (2 if build.cuda else 1),
        cuda=build.cuda or "",
        nvcc=nvcc_path(build.cuda) if build.cuda else "",
        lists_flags=dialect.traits.help_lists_flags,
        lists_devices=dialect.lists_devices,
    )


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
