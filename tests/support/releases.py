"""Rigs whose engine is a release, and locks that have its archives."""

from __future__ import annotations

from typing import Any

from llamaherd.inventory.schema import UPSTREAM, Rig
from llamaherd.lock import Lock, LockedRef, LockedRelease, LockedReleaseFile
from llamaherd.plan import BuildPlan, Plan
from tests.support.ours import plan
from tests.support.rigs import COMMIT, changed, cpu_rig, gpu_rig, hub_lock

GIT = UPSTREAM["llama.cpp"]
TAG = "b11434"
DOWNLOAD = f"{GIT}/releases/download/{TAG}"
CPU_ARCHIVE = LockedReleaseFile(url=f"{DOWNLOAD}/llama-{TAG}-bin-ubuntu-x64.tar.gz", sha256="1a" * 32, size=17_000_000)
CUDA_ARCHIVES = tuple(
    LockedReleaseFile(url=f"{DOWNLOAD}/{name}-{TAG}-bin-ubuntu-cuda-13.4-x64.tar.gz", sha256=digit * 64, size=size)
    for name, digit, size in (("llama", "2", 150_000_000), ("cudart-llama", "3", 600_000_000))
)


def release_lock(*others: LockedRelease) -> Lock:
    """Return a lock with the release for a CPU and for CUDA 13."""
    releases = (
        LockedRelease(git=GIT, release=TAG, system="x64", archives=(CPU_ARCHIVE,)),
        LockedRelease(git=GIT, release=TAG, system="cuda-13-x64", archives=CUDA_ARCHIVES),
    )
    engine = LockedRef(git=GIT, ref=TAG, commit=COMMIT)
    return hub_lock().model_copy(update={"engines": (engine,), "releases": (*releases, *others)})


def cpu_release(**changes: Any) -> Rig:
    """Return the rig without a GPU, whose only server is of a release."""
    rig = changed(cpu_rig(), {"engines/main": {"kind": "llama.cpp", "release": TAG}})
    del rig["instances"]["drafter"]
    return Rig.model_validate(changed(rig, changes))


def gpu_release(**changes: Any) -> Rig:
    """Return the rig with GPUs, whose llama.cpp is a release, beside engines that are built."""
    rig = changed(gpu_rig(), {"engines/main": {"kind": "llama.cpp", "release": TAG}})
    del rig["instances"]["boxed"]
    return Rig.model_validate(changed(rig, changes))


def planned_release(rig: Rig) -> Plan:
    """Return the plan of a rig whose release is locked."""
    return plan(rig, release_lock())


def release_of(made: Plan) -> BuildPlan:
    """Return the only release of a plan."""
    (found,) = (build for build in made.builds if build.release)
    return found
