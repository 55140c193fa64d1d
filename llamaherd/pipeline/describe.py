"""A plan as people read it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.plan import (
    RAM,
    BandwidthRule,
    BuildPlan,
    CardPower,
    DriverPlan,
    Estimate,
    FromFolder,
    FromHub,
    FromNeighbour,
    Grows,
    Holds,
    InstancePlan,
    ModelPlan,
    Origin,
    Plan,
    RepositoryPlan,
    StorePlan,
    WslPlan,
)
from llamaherd.planner.repositories import NVIDIA
from llamaherd.reference.cards import usable
from llamaherd.text.units import show_mib, show_size


def show_plan(plan: Plan, asked: Mapping[str, Estimate | str] | None = None) -> str:
    """The whole plan, one part under the other; `asked` is what the engines said of the instances, by name."""
    said = asked or {}
    parts = [
        f"rig {plan.rig} ({plan.os})",
        f"  packages   {' '.join(plan.packages)}",
        *(_driver(plan.driver, plan.repositories) if plan.driver else ()),
        *_toolkit(plan),
        *_docker(plan),
        *_power(plan),
        *(_wsl(plan.wsl) if plan.wsl else ()),
        *(line for build in plan.builds for line in _build(build)),
        *(_store(plan.store) if plan.models else ()),
        *(line for model in plan.models for line in _model(model)),
        *(f"  image      {image.tag}\n             on {image.base}" for image in plan.images),
        *(line for instance in plan.instances for line in _instance(instance, said.get(instance.name))),
        *_whole(plan),
    ]
    return "\n".join(parts) + "\n"


def _driver(driver: DriverPlan, repositories: Iterable[RepositoryPlan]) -> list[str]:
    """Which packages it is, where they come from, and what keeps it."""
    origin = next((each.url for each in repositories if each.name == NVIDIA), "the distribution")
    signed = f" {driver.prebuilt}-<kernel>" if driver.prebuilt else ""
    wanted = f"version {driver.version}" if driver.version else f"the newest of branch {driver.branch}, then kept"
    reboot = "where only that loads it" if driver.reboot else "never"
    return [
        f"  driver     {driver.branch}, {driver.modules} modules: {wanted}",
        f"             {' '.join(driver.packages)}{signed}",
        f"             from {origin if driver.source == 'nvidia' else 'the distribution'}",
        *(f"             pinned by {file.path}" for file in driver.files[:1]),
        f"             rebooted {reboot}",
    ]


def _toolkit(plan: Plan) -> list[str]:
    """The CUDA toolkit, and the compiler beside it."""
    toolkit = plan.toolkit
    if toolkit is None:
        return []
    lines = [f"  cuda       {toolkit.version}: {toolkit.package}, unless {toolkit.nvcc} is there"]
    compiler = (toolkit.compiler or "").rpartition("/")[2]
    return [*lines, f"             with {compiler} for the host's part"] if compiler else lines


def _docker(plan: Plan) -> list[str]:
    """What containers need, and what gives them cards."""
    if (runtime := plan.runtime) is None:
        return []
    docker, compose = (".".join(map(str, version)) for version in (runtime.docker, runtime.compose))
    packages = " ".join(runtime.packages)
    lines = [f"  docker     {docker} or newer with Compose {compose} or newer, or else {packages}"]
    if runtime.toolkit is None:
        return lines
    version = f" {runtime.toolkit.version}" if runtime.toolkit.version else ", the newest and then kept"
    return [*lines, f"             cards by NVIDIA's container toolkit{version}"]


def _power(plan: Plan) -> list[str]:
    """What cards are held to, and what of that this system cannot do."""

    def row(card: CardPower, note: str) -> str:
        return f"{card.name}: {card.declared}{note}"

    rows = [row(card, f" ({card.at})") for card in (plan.power.cards if plan.power else ())]
    rows += [row(card, ", which is Windows' to set") for card in plan.windows_power]
    return [f"  {'power' if not number else '':10} {row}" for number, row in enumerate(rows)]


def _wsl(wsl: WslPlan) -> list[str]:
    """What WSL is to be told, and what is left for Windows' administrator to run."""
    settings = [f"{section}.{key}={value}" for section, keys in wsl.settings.items() for key, value in keys.items()]
    return [
        f"  .wslconfig {' '.join(settings) or 'as it is'}",
        f"             in {wsl.profile or 'the folder of the Windows user who started WSL'}",
        *(f"             to be run in Windows: {script.path}" for script in wsl.scripts),
    ]


def _build(build: BuildPlan) -> list[str]:
    source = build.source
    pinned = f"commit {source.commit}" if source.git else f"sha256 {source.sha256}"
    return [
        f"  engine     {build.engine}: {build.id}",
        f"             from {source.git or source.archive}",
        f"             {pinned}",
        *(f"             -D{name}={value}" for name, value in build.options.items()),
        f"             builds {' '.join(build.targets)} into {build.folder}",
    ]


def _store(store: StorePlan) -> list[str]:
    limits = [f"{show_size(rule.bytes_per_second)}/s {_hours(rule)}" for rule in store.bandwidth]
    limited = f", at most {', '.join(limits)}" if limits else ""
    return [
        f"  store      {store.path}",
        f"             from {', '.join(map(_origin, store.sources)) or 'nowhere'}",
        f"             by {store.connections} connections{limited}",
    ]


def _origin(origin: Origin) -> str:
    match origin:
        case FromNeighbour():
            return f"rig {origin.name} ({origin.address}:{origin.port})"
        case FromFolder():
            return origin.path
        case FromHub():
            return "hub"


def _hours(rule: BandwidthRule) -> str:
    return "always" if rule.begin == rule.end else f"from {rule.begin} to {rule.end}"


def _model(model: ModelPlan) -> list[str]:
    origin = model.url or str(model.local)
    sizes = [file.size for file in model.files if file.size is not None]
    total = f", {show_size(sum(sizes))}" if sizes else ""
    return [
        f"  model      {model.name}: {len(model.files)} file{'s' if len(model.files) != 1 else ''}{total}",
        f"             from {origin}",
        *(f"             {file.name}  sha256 {file.sha256}" for file in model.files),
        f"             into {model.folder}",
    ]


def _instance(instance: InstancePlan, said: Estimate | str | None) -> list[str]:
    server, endpoint = instance.server, instance.endpoint
    program = server.program or str(server.image)
    key = f"API key in {instance.key_file}" if instance.key_file else "no API key"
    return [
        f"  instance   {instance.name}: {instance.backend} as {instance.service}, spec {instance.spec}",
        f"             {endpoint.listen}:{endpoint.port}, {key}, {server.start_seconds} s to load",
        f"             {shlex.join([program, *server.arguments])}",
        f"             in {instance.file.path}",
        *((*_memory(instance.memory), *_growing(instance.memory.grows)) if instance.memory else ()),
        *(_said(said, instance.memory) if said else ()),
    ]


_COLUMNS = ("weights", "kv", "state", "compute", "draft", "cuda", "total", "of")


def _memory(estimate: Estimate) -> list[str]:
    """What each card and the RAM hold, in MiB. An engine tells cache and state in one figure."""
    width = max(len(f"MiB by {estimate.source}"), *(len(each.where) for each in estimate.holds))
    rows: list[tuple[str, ...]] = [(f"MiB by {estimate.source}", *_COLUMNS)]
    for each in estimate.holds:
        figures = (each.weights, each.kv, each.state, each.compute, each.draft, each.cuda, each.total, each.size)
        cells = [f"{figure / (1 << 20):,.0f}" for figure in figures]
        if estimate.source == "engine":
            cells[_COLUMNS.index("state")] = "in kv"
        rows.append((each.where, *cells))
    lines = [f"             {first:{width}}" + "".join(f"{cell:>10}" for cell in cells) for first, *cells in rows]
    return lines + [f"             not sure: {doubt}" for doubt in estimate.doubts]


def _growing(grows: Grows) -> list[str]:
    """What comes to its RAM while a server works."""
    parts = [f"{show_mib(grows.prompts)} of saved prompts"] if grows.prompts else []
    parts += ["any amount of saved prompts"] if grows.prompts is None else []
    parts += [f"{show_mib(grows.checkpoints)} of checkpoints"] if grows.checkpoints else []
    return [f"             RAM grows by up to {' and '.join(parts)}"] if parts else []


def _said(said: Estimate | str, ours: Estimate | None) -> list[str]:
    """What the engine itself says, and by how much that is more or less than the arithmetic."""
    if isinstance(said, str):
        return [f"             MiB by engine: {said}"]
    known = {each.where: each.total for each in ours.holds} if ours else {}
    more = [f"{each.where} {each.total / total - 1:+.1%}" for each in said.holds if (total := known.get(each.where))]
    return _memory(said) + ([f"             engine to arithmetic: {', '.join(more)}"] if more else [])


def _whole(plan: Plan) -> list[str]:
    """What all instances together hold of each card and the RAM, in MiB, as far as they are known."""
    held: dict[str, list[Holds]] = {}
    for instance in plan.instances:
        for each in instance.memory.holds if instance.memory else ():
            held.setdefault(each.where, []).append(each)
    if not held:
        return []
    rows: list[tuple[str, ...]] = [("", "instances", "held", "kept", "left", "of")]
    for where, parts in sorted(held.items(), key=lambda item: item[0] == RAM):
        size, total = parts[0].size, sum(each.total for each in parts)
        share = SYSTEM_RAM if where == RAM else size - usable(size) + MARGIN
        figures = (total, share, size - total - share, size)
        rows.append((where, str(len(parts)), *(f"{figure / (1 << 20):,.0f}" for figure in figures)))
    width = max(len(row[0]) for row in rows)
    lines = [f"{first:{width}}" + "".join(f"{cell:>10}" for cell in cells) for first, *cells in rows]
    lines += _grown(plan, sum(each.total for each in held.get(RAM, ())))
    return [f"  {'memory' if not number else '':10} {line}" for number, line in enumerate(lines)]


def _grown(plan: Plan, held: int) -> list[str]:
    """What the RAM may hold when all servers have worked for long."""
    grows = [instance.memory.grows for instance in plan.instances if instance.memory]
    known = sum((each.prompts or 0) + each.checkpoints for each in grows)
    if any(each.prompts is None for each in grows):
        return ["RAM may grow without a limit"]
    return [f"RAM may grow to {show_mib(held + known)}"] if known else []
