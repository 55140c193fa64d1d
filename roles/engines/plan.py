"""Engines as they must be built: options, targets, and a folder that is named by a hash of them."""

from __future__ import annotations

from llamaherd.checks.building import host_compiler, host_compilers
from llamaherd.engines import DIALECTS
from llamaherd.inventory.schema import Engine, Rig
from llamaherd.inventory.schema.software import cmake_value
from llamaherd.plan import BuildPlan, digest
from llamaherd.reference.distributions import BUILD_PACKAGES
from llamaherd.role.role import Planning, PlanPart

RECIPE = 1
"""Counts up when the same options would give another build; it is part of every build id."""

# Measured: sources, objects and binaries of a CPU build, and of a CUDA build for one architecture.
_BUILD_BYTES = 2 * 10**9
_CUDA_BUILD_BYTES = 8 * 10**9


def plan(planning: Planning) -> PlanPart:
    """A build for each engine that an instance runs on and that has a source."""
    rig = planning.rig
    used = sorted({instance.engine for instance in rig.instances.values()})
    builds = tuple(build for name in used if (build := _build(rig, name, rig.engines[name])))
    packages = frozenset({*BUILD_PACKAGES, *host_compilers(rig)}) if builds else frozenset()
    return PlanPart(packages=packages, fields={"builds": builds})


def _build(rig: Rig, name: str, engine: Engine) -> BuildPlan | None:
    source = engine.source
    if source is None:
        return None
    architectures = _architectures(rig, name)
    cuda = rig.gpus.cuda if rig.gpus and architectures else None
    options = _options(rig, engine, architectures, cuda)
    origin = source.commit if source.git else source.sha256
    targets = _targets(rig, name, engine)
    identity = digest(RECIPE, engine.kind, origin, source.folder, source.overlay, options, targets, rig.host.os)
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
    )


def _targets(rig: Rig, name: str, engine: Engine) -> tuple[str, ...]:
    """What is built: the server, and what compares what it says only where an instance is to be judged."""
    judged = any(each.engine == name and each.judged for each in rig.instances.values())
    dialect = DIALECTS[engine.kind]
    more = dialect.traits.divergence
    return (*dialect.targets, more) if judged and more else dialect.targets


def _options(rig: Rig, engine: Engine, architectures: tuple[str, ...], cuda: str | None) -> dict[str, str]:
    """What CMake is told; what is declared comes last, and wins."""
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
    """Architectures of the GPUs that this engine's instances run on; none for an engine that only sees CPUs."""
    if rig.gpus is None:
        return ()
    gpus = {gpu for i in rig.instances.values() if i.engine == engine for gpu in i.on}
    return tuple(sorted({rig.gpus.cards[gpu].cuda_architecture for gpu in gpus}, key=_by_number))


def _by_number(architecture: str) -> tuple[int, str]:
    return int(architecture.rstrip("af")), architecture
