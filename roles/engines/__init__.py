"""Engines: built from their pinned sources or fetched as releases, each in a folder named by its build id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from llamaherd.checks.toolkit import host_compiler, host_compilers
from llamaherd.engines import DIALECTS
from llamaherd.engines.flags import catalogue
from llamaherd.engines.flags.definitions import flags_as_mapping, parse_help
from llamaherd.host.responses import build_manifest
from llamaherd.host.state import EnginesState, HostState, StatePart
from llamaherd.host.time_limits import BUILD_SECONDS, SOURCE_SECONDS, transfer_seconds
from llamaherd.inventory.schema import Engine, Rig, Source
from llamaherd.inventory.schema.software import BuiltFlags, cmake_value
from llamaherd.layout import CACHE
from llamaherd.lock.local_files import FOLDER, BuiltEngine, keep_built
from llamaherd.onhost.verification import Probe
from llamaherd.plan import BuildPlan, Estimate, Plan, ReleasePlan, StorePlan, digest
from llamaherd.reference.packages import BUILD_PACKAGES, RELEASE_PACKAGES
from llamaherd.reference.toolchains import NEWEST_GCC, release
from llamaherd.role.changes import Change, RunVerb, SendFile
from llamaherd.role.preflight import DiskNeed, PreflightRow, Refusal
from llamaherd.role.report import Installed
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Run, Task, Verified
from roles.engines.onhost import (
    BuildInput,
    BuildQuery,
    Found,
    InspectInput,
    InstallInput,
    SourceFileInput,
    VouchInput,
)
from roles.engines.onhost.compiling import CompileInput, PageInput, SourceInput
from roles.engines.onhost.prebuilt import ArchiveInput, BandwidthInput, ReleaseInput

RECIPE = 1
"""Counts up when the same options would give another build; it is part of every build id."""

# Measured: sources, objects and binaries of a CPU build, and of a CUDA build for one architecture.
_BUILD_BYTES = 2 * 10**9
_CUDA_BUILD_BYTES = 8 * 10**9

_UNPACKED = 4
"""An archive and its files have fewer bytes than so many times the archive, which is packed two to three times."""

_COMPILERS = ("CMAKE_CUDA_HOST_COMPILER", "CMAKE_CXX_COMPILER")

_NO_LIMITS = StorePlan()

_WHY = {
    None: "it is not built",
    "building": "it is being built",
    "built": "it is built, and not let in yet",
    "damaged": "a program of it is not what was built",
}
"""By the stage of a build."""

_WHY_RELEASE = {
    None: "it is not installed",
    "building": "it is being installed",
    "built": "it is unpacked, and not let in yet",
    "damaged": "a file of it is not what was installed",
}
"""By the stage of a release."""


def plan(planning: Planning) -> PlanPart:
    """Return a build for each engine that is built or a release, and that an instance runs on."""
    rig = planning.rig
    used = sorted({instance.engine for instance in rig.instances.values()})
    builds = tuple(build for name in used if (build := _build(rig, name, rig.engines[name])))
    packages: set[str] = set()
    if any(build.release is None for build in builds):
        packages |= {*BUILD_PACKAGES, *host_compilers(rig)}
    if any(build.release for build in builds):
        packages |= {*RELEASE_PACKAGES}
    return PlanPart(packages=frozenset(packages), fields={"builds": builds})


def _build(rig: Rig, name: str, engine: Engine) -> BuildPlan | None:
    source = engine.source
    if source is None:
        return None
    if engine.release:
        return _release(rig, name, engine, engine.release, source)
    architectures = _architectures(rig, name)
    cuda = rig.gpus.cuda if rig.gpus and architectures else None
    options = _options(rig, engine, architectures, cuda)
    origin = source.commit if source.git else source.sha256
    targets = _targets(rig, name, engine)
    # A build without a page keeps its id: engines that were locked before pages were do not change.
    page = (engine.page.sha256,) if engine.page else ()
    identity = digest(RECIPE, engine.kind, origin, source.folder, source.overlay, options, targets, rig.host.os, *page)
    build_id = f"{engine.kind}-{identity}"
    return BuildPlan(
        id=build_id,
        engine=name,
        kind=engine.kind,
        source=source,
        options=options,
        targets=targets,
        cuda=cuda,
        disk=_CUDA_BUILD_BYTES if cuda else _BUILD_BYTES,
        page=engine.page,
    )


def _release(rig: Rig, name: str, engine: Engine, tag: str, source: Source) -> BuildPlan:
    """Return a release as it is installed: its id hashes its archives, and all that decides whether it is accepted."""
    architectures = _architectures(rig, name)
    targets = _targets(rig, name, engine)
    hashes = [each.sha256 for each in engine.archives]
    identity = digest(RECIPE, engine.kind, "release", hashes, architectures, targets, rig.host.os)
    return BuildPlan(
        id=f"{engine.kind}-{identity}",
        engine=name,
        kind=engine.kind,
        source=source,
        options={},
        targets=targets,
        cuda=rig.gpus.cuda.partition(".")[0] if rig.gpus and architectures else None,
        disk=_UNPACKED * sum(each.size for each in engine.archives),
        release=ReleasePlan(tag=tag, archives=engine.archives, architectures=architectures),
    )


def _targets(rig: Rig, name: str, engine: Engine) -> tuple[str, ...]:
    """Return the targets to build: the server, and the program that compares responses if an instance needs it."""
    judged = any(each.engine == name and each.judged for each in rig.instances.values())
    dialect = DIALECTS[engine.kind]
    more = dialect.traits.divergence
    return (*dialect.targets, more) if judged and more else dialect.targets


def _options(rig: Rig, engine: Engine, architectures: tuple[str, ...], cuda: str | None) -> dict[str, str]:
    """Return the options of CMake. Declared ones come last and override the others."""
    dialect = DIALECTS[engine.kind]
    options = dict(dialect.build_options(architectures))
    if engine.source and engine.source.version:
        options |= dialect.version_options(engine.source.version)
    if cuda:
        options["CMAKE_CUDA_COMPILER"] = nvcc_path(cuda)
        if compiler := host_compiler(rig, engine):
            options["CMAKE_CUDA_HOST_COMPILER"] = compiler
    return options | {option: cmake_value(value) for option, value in engine.options.items()}


def nvcc_path(cuda: str) -> str:
    """Return where the compiler of a CUDA toolkit is."""
    return f"/usr/local/cuda-{cuda}/bin/nvcc"


def _architectures(rig: Rig, engine: str) -> tuple[str, ...]:
    """Return the architectures of the GPUs of this engine's instances; none for an engine on CPUs."""
    if rig.gpus is None:
        return ()
    gpus = {gpu for i in rig.instances.values() if i.engine == engine for gpu in i.on}
    return tuple(sorted({rig.gpus.cards[gpu].cuda_architecture for gpu in gpus}, key=_by_number))


def _by_number(architecture: str) -> tuple[int, str]:
    return int(architecture.rstrip("af")), architecture


@dataclass(frozen=True)
class BuiltState(StatePart):
    """The flags of finished builds, and the sources on the host."""

    flags: Mapping[str, BuiltFlags] = field(default_factory=dict)
    """By build id."""
    sources: Set[str] = frozenset()
    """The sha256s of sources that the controller sent."""


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect, with the flags of versions without a catalogue."""
    if not plan.builds:
        return None
    unlisted = {build.id for build in _asking(plan)}
    builds = tuple(BuildQuery(build.id, tuple(build.targets), build.id in unlisted) for build in plan.builds)
    return InspectInput(builds, tuple(build.source.sha256 for build in plan.builds if build.source.sha256))


def state_parts(found: Found) -> tuple[EnginesState, BuiltState]:
    """Return the parts of the host's state."""
    flags = {build: parse_help(text) for build, text in found.flags.items()}
    return EnginesState(found.builds), BuiltState(flags, frozenset(found.sources))


def keep(folder: Path, plan: Plan, state: HostState) -> str:
    """Write the flags of builds next to the lock, in the inventory's folder. Return a sentence if a file changed."""
    listed = BuiltState.of(state).flags
    asking = {build.id: build.source.commit or build.source.sha256 or "" for build in _asking(plan)}
    builds = {
        name: BuiltEngine(source=source, flags=flags_as_mapping(flags))
        for name, source in asking.items()
        if (flags := listed.get(name))
    }
    changed = keep_built(folder, plan.rig, builds, frozenset(asking))
    return f"wrote {FOLDER}/{plan.rig}.json, the flags of its engines: commit it with the lock" if changed else ""


def _asking(plan: Plan) -> list[BuildPlan]:
    """Return the builds of versions that have no catalogue."""
    return [build for build in plan.builds if not _is_known(build)]


def _is_known(build: BuildPlan) -> bool:
    number = build.source.build_number
    known = catalogue(build.kind, f"b{number}" if number else build.source.commit or "")
    return known is not None and known.exact


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield compilers that a build uses and that neither are installed nor will be."""
    if not state.system.machine.kernel:
        return
    for build in compiled_builds(plan):
        if state.engines.builds.get(build.id) in (None, "damaged"):
            for version in sorted(own_compilers(build) - {*state.system.machine.gcc}):
                package = f"g++-{version}"
                if package not in plan.packages:
                    message = f"engine `{build.engine}` must be compiled with {package}, which is not installed"
                    help_ = f"`apt-get install {package}` on the host, or name another compiler in its `options`"
                    yield Refusal(message, help_, "compilers")


def compiled_builds(plan: Plan) -> list[BuildPlan]:
    """Return the builds that hosts compile, and not the releases."""
    return [build for build in plan.builds if build.release is None]


def own_compilers(build: BuildPlan) -> set[int]:
    """Return the versions of g++ that a build's options name, besides the host's own."""
    output = (re.fullmatch(r"(?:/usr/bin/)?g\+\+-(\d+)", build.options.get(option, "")) for option in _COMPILERS)
    return {int(each[1]) for each in output if each}


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the row about compilers, if something is built."""
    if not (builds := compiled_builds(plan)):
        return
    newest = {cuda: NEWEST_GCC.get(release(cuda) or (0, 0)) for build in builds if (cuda := build.cuda)}
    wanted = [f"up to g++ {gcc} for CUDA {cuda}" for cuda, gcc in sorted(newest.items()) if gcc]
    wanted += [f"g++-{each}" for each in sorted(set().union(*map(own_compilers, plan.builds)))]
    have = ", ".join(f"g++ {version}" for version in sorted(state.system.machine.gcc))
    found = have or ("g++" if "g++" in state.system.packages else "none yet")
    yield PreflightRow("compilers", found, "; ".join(wanted))


def build_changes(build: BuildPlan, state: HostState, store: StorePlan = _NO_LIMITS) -> list[Change]:
    """Send the source, if it is here; build, or join a build that runs, or let in one that has ended.

    A release is installed instead, within the limits that the store of models has for downloads.
    """
    stage = state.engines.builds.get(build.id)
    if stage == "done":
        return []
    if stage == "intact":
        why = ("something is new about its files, whose content is as it was built",)
        return [Change("update", "build", build.id, why, RunVerb("engines.vouch", VouchInput(build.id)))]
    if build.release:
        seconds = transfer_seconds(each.size for each in build.release.archives)
        given = InstallInput(install_input(build, build.release, store), seconds)
        how = RunVerb("engines.install", given, f"installing {build.id}")
        return [Change("fetch", "engine", build.id, (_WHY_RELEASE.get(stage, str(stage)),), how)]
    changes = []
    archive, sha256 = build.source.local_archive, build.source.sha256
    if stage in (None, "damaged") and archive and sha256 and sha256 not in BuiltState.of(state).sources:
        admit = RunVerb("engines.admit_source", SourceFileInput(sha256))
        send = SendFile(archive, sha256, (CACHE / "sources" / sha256,))
        why = (f"the host has no source with sha256 {sha256}",)
        changes += [Change("send", "source", archive.name, why, how) for how in (send, admit)]
    how = RunVerb("engines.build", BuildInput(compile_input(build), BUILD_SECONDS), f"building {build.id}")
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
            page=PageInput(build.page.url, build.page.sha256) if build.page else None,
        ),
        options=build.options,
        targets=build.targets,
        bytes_per_job=dialect.bytes_per_job * (2 if build.cuda else 1),
        cuda=build.cuda or "",
        nvcc=nvcc_path(build.cuda) if build.cuda else "",
        lists_flags=dialect.traits.help_lists_flags,
        lists_devices=dialect.lists_devices,
    )


def install_input(build: BuildPlan, release: ReleasePlan, store: StorePlan) -> ReleaseInput:
    """Return a release as the program on hosts installs it."""
    dialect = DIALECTS[build.kind]
    return ReleaseInput(
        id=build.id,
        kind=build.kind,
        tag=release.tag,
        git=build.source.git or "",
        commit=build.source.commit or "",
        archives=tuple(ArchiveInput(each.name, each.url, each.sha256, each.size) for each in release.archives),
        targets=build.targets,
        architectures=tuple(_by_number(each)[0] for each in release.architectures),
        cuda=build.cuda or "",
        lists_flags=dialect.traits.help_lists_flags,
        lists_devices=dialect.lists_devices,
        connections=store.connections,
        bandwidth=tuple(BandwidthInput(*each) for each in store.bandwidth),
        seconds=transfer_seconds(each.size for each in release.archives),
    )


def source_sends(plan: Plan, state: HostState) -> list[SendFile]:
    """Return the sources of the controller that a run would send."""
    hows = [change.how for build in plan.builds for change in build_changes(build, state)]
    return [how for how in hows if isinstance(how, SendFile)]


def build_needs(plan: Plan, state: HostState, _: Mapping[str, int]) -> list[DiskNeed]:
    """Return the room that builds take while they are made."""
    # What is kept of one is small.
    if state.system.free is None:
        return []
    folder, free, device = state.system.free
    need = sum(build.disk for build in plan.builds if state.engines.builds.get(build.id) in (None, "damaged"))
    return [DiskNeed(folder, free, device, need)]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of manifests, and of the hash of every program."""
    for build in plan.builds:
        yield Probe("build", build.id, ("cat", f"{build.folder}/manifest.json"))
        # It may take a while: programs have hundreds of MB.
        hashed = ("find", f"{build.folder}/bin", "-type", "f", "-exec", "sha256sum", "{}", "+")
        yield Probe("programs", build.id, hashed, seconds=600)


def installed_builds(judging: Judging) -> Iterator[Installed]:
    """Yield the builds that exist."""
    for build in judging.plan.builds:
        if output := build_manifest(build.id, judging.outputs):
            version = str(output.get("version", "")).removeprefix("version: ")
            made_by = f"release {build.release.tag}" if build.release else output.get("compiler")
            yield Installed(f"{build.kind} ({build.id}, {version}, {made_by})", build.folder)


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the builds, and their sources."""
    return [line for build in plan.builds for line in _build_lines(build)]


def _build_lines(build: BuildPlan) -> list[str]:
    source = build.source
    if build.release:
        return _release_lines(build, build.release)
    pinned = f"commit {source.commit}" if source.git else f"sha256 {source.sha256}"
    return [
        f"  engine     {build.engine}: {build.id}",
        f"             from {source.git or source.archive}",
        f"             {pinned}",
        *([f"             page {build.page.url}", f"             sha256 {build.page.sha256}"] if build.page else []),
        *(f"             -D{name}={value}" for name, value in build.options.items()),
        f"             builds {' '.join(build.targets)} into {build.folder}",
    ]


def _release_lines(build: BuildPlan, release: ReleasePlan) -> list[str]:
    return [
        f"  engine     {build.engine}: {build.id}",
        f"             release {release.tag} of {build.source.git}, as its authors built it",
        f"             commit {build.source.commit}",
        *(
            line
            for each in release.archives
            for line in (f"             {each.url}", f"             sha256 {each.sha256}")
        ),
        *(f"             lacks {each}" for each in release_lacks(build)),
        f"             installs {' '.join(build.targets)} into {build.folder}",
    ]


def release_lacks(build: BuildPlan) -> Iterator[str]:
    """Yield what a release lacks that a build on the host has."""
    if build.cuda:
        types = ", ".join(sorted(pair.partition("-")[0] for pair in DIALECTS[build.kind].traits.pairs))
        yield f"flash attention for other cache types than {types}, and for K and V of different types"
    yield "code for this very processor: it picks one of its variants at the start"


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield one build after the other: each uses all cores. Servers whose build fails keep running unchanged."""
    for build in plan.builds:
        yield Task(f"{build.engine} ({build.id})", partial(_changes, build, plan.store), alone=True)


def _changes(build: BuildPlan, store: StorePlan, state: HostState, _: Run) -> list[Change]:
    return build_changes(build, state, store)


ROLE = Role(
    name="engines",
    summary="Every engine is built from its pinned source or installed from its release, and is unchanged since.",
    for_instances=True,
    plan=plan,
    inspection=Inspection("engines.inspect", inspection_input, Found, state_parts),
    keep=keep,
    refusals=refusals,
    facts=facts,
    needs=build_needs,
    sends=source_sends,
    tasks=tasks,
    probes=probes,
    judge=lambda judging: Verified(installed=tuple(installed_builds(judging))),
    describe=describe,
)
