"""A release in a plan: no compiler and no toolkit for it, its own id, and the same road as a build afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.lock import LockedRelease, LockedReleaseFile
from llamaherd.onhost.removal import FoundThing, Things
from llamaherd.plan import Plan
from llamaherd.reference.packages import BUILD_PACKAGES
from llamaherd.store.unused import items_of_host
from roles.engines import build_changes, build_needs, install_input, refusals
from roles.engines.onhost import InstallInput
from roles.engines.onhost.prebuilt import ArchiveInput, BandwidthInput
from tests.support.ours import plan, show_plan
from tests.support.recording import input_of
from tests.support.releases import (
    CPU_ARCHIVE,
    CUDA_ARCHIVES,
    TAG,
    cpu_release,
    gpu_release,
    planned_release,
    release_lock,
    release_of,
)
from tests.support.rigs import changed, cpu_rig, planned
from tests.support.states import host_with

CPU = planned_release(cpu_release())
GPU = planned_release(gpu_release())


def test_a_host_with_releases_alone_gets_no_compiler() -> None:
    assert not {*BUILD_PACKAGES} - {"ca-certificates", "curl"} & {*CPU.packages}
    assert "libgomp1" in CPU.packages
    assert "libgomp1" not in planned(cpu_rig()).packages
    (server,) = CPU.instances
    assert server.server.program == f"{release_of(CPU).folder}/bin/llama-server"
    assert CPU.toolkit is None


def test_cuda_releases_need_no_toolkit() -> None:
    rig = gpu_release()
    assert planned_release(rig).toolkit is not None  # another engine is built
    alone = rig.model_copy(update={"instances": {n: i for n, i in rig.instances.items() if i.engine == "main"}})
    made = planned_release(alone)
    assert made.toolkit is None
    assert [build.release is None for build in made.builds] == [False]
    release = release_of(made)
    assert (release.cuda, release.options) == ("13", {})
    assert release.release
    assert release.release.architectures == ("86", "120")


def test_the_id_hashes_what_decides_what_is_installed() -> None:
    same = planned_release(cpu_release(**{"instances/chat/context": 4096}))
    assert release_of(same).id == release_of(CPU).id
    other = LockedReleaseFile(url=CPU_ARCHIVE.url, sha256="1b" * 32, size=5)
    lock = release_lock()
    moved = LockedRelease(git=lock.releases[0].git, release=TAG, system="x64", archives=(other,))
    lock = lock.model_copy(update={"releases": (moved,)})
    ids = {release_of(each).id for each in (CPU, GPU, plan(cpu_release(), lock))}
    ids |= {release_of(planned_release(cpu_release(**{"host/os": "ubuntu-24.04"}))).id}
    assert len(ids) == 4


def test_it_is_fetched_within_the_limits_of_the_store() -> None:
    rig = gpu_release(store={"bandwidth": {"limit": "8MB/s", "hours": "08:00-22:00"}, "connections": 3})
    made = planned_release(rig)
    (change,) = build_changes(release_of(made), HostState(), made.store)
    assert (change.action, change.kind, change.reasons) == ("fetch", "engine", ("it is not installed",))
    given = input_of(change, InstallInput).release
    assert (given.connections, given.bandwidth) == (3, (BandwidthInput("08:00", "22:00", 8_000_000),))
    assert given.archives == tuple(
        ArchiveInput(e.url.rpartition("/")[2], e.url, e.sha256, e.size) for e in CUDA_ARCHIVES
    )
    assert given.architectures == (86, 120)
    assert given.targets[0] == "llama-server"


@pytest.mark.parametrize(
    ("stage", "actions"),
    [
        ("done", []),
        ("intact", [("update", "build")]),
        ("building", [("fetch", "engine")]),
        ("damaged", [("fetch", "engine")]),
    ],
)
def test_stages_are_those_of_a_build(stage: str, actions: list[tuple[str, str]]) -> None:
    state = host_with(builds={release_of(CPU).id: stage})
    assert [(each.action, each.kind) for each in build_changes(release_of(CPU), state)] == actions


def test_it_needs_room_and_no_compiler() -> None:
    state = host_with(free=("/opt", 10**12, "sda"))
    assert [need.need for need in build_needs(CPU, state, {})] == [4 * CPU_ARCHIVE.size]
    assert [*refusals(CPU, state)] == []


def test_the_plan_shows_what_a_release_lacks() -> None:
    shown = show_plan(GPU)
    assert f"release {TAG} of https://github.com/ggml-org/llama.cpp, as its authors built it" in shown
    for archive in CUDA_ARCHIVES:
        assert archive.url in shown
        assert f"sha256 {archive.sha256}" in shown
    assert "lacks flash attention for other cache types than bf16, f16, q4_0, q8_0" in shown
    assert "lacks code for this very processor" in shown
    assert "lacks flash attention" not in show_plan(CPU)


def test_a_bundle_of_a_plan_is_read_again() -> None:
    assert Plan.model_validate_json(GPU.model_dump_json()) == GPU


def test_prune_keeps_a_release_and_what_has_arrived_of_it() -> None:
    names = [CPU_ARCHIVE.sha256, f"{CPU_ARCHIVE.sha256}.part", f"{CPU_ARCHIVE.sha256}.map", "9f" * 32]
    things = (*(FoundThing("source", name, 5) for name in names), FoundThing("build", release_of(CPU).id, 5))
    items = items_of_host(CPU, Things((*things, FoundThing("build", "llama.cpp-old", 5)), (), False))
    assert [each.name for each in items.removals] == ["9f" * 32, "llama.cpp-old"]


def test_a_release_instead_of_a_build_restarts_servers_and_nothing_else_does() -> None:
    """An existing inventory has the same units as before."""
    rig = Rig.model_validate(changed(cpu_rig(), {}))
    assert all(build.release is None for build in plan(rig, release_lock()).builds)
    assert plan(rig, release_lock()).instances == planned(cpu_rig()).instances


def test_limits_do_not_count_as_another_engine() -> None:
    release = release_of(CPU)
    assert release.release
    usual = install_input(release, release.release, CPU.store)
    assert replace(usual, connections=1) != usual
    assert usual.id == release.id
