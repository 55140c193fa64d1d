"""What stands in the way of a run, from state alone."""

from __future__ import annotations

import pytest

from llamaherd.host.state import HostState
from llamaherd.onhost.servers import Holder
from tests.support.drifts import (
    CPU,
    GPU,
    Drift,
    container,
    free_on_disk,
    having,
    host,
    seen_of,
    store,
    together,
    unit,
)
from tests.support.ours import refusals
from tests.support.rigs import cpu_rig, planned
from tests.support.states import updated


def test_no_more_than_the_missing_shard_is_counted() -> None:
    model = next(model for model in GPU.models if model.name == "35b")
    second = model.files[1]

    def half(free: int) -> Drift:
        def drift(seen: HostState) -> HostState:
            stored = {name: each for name, each in seen.models.stored[model.folder].items() if name != second.name}
            half_there = updated(
                seen,
                builds={build.id: "done" for build in GPU.builds},
                stored={model.folder: stored},
                incoming={f"{second.sha256}.part": 15 * 10**9},
                kept={"/var/lib/llamaherd/models/old/one": 7 * 10**9},
            )
            return free_on_disk(free)(half_there)

        return drift

    assert refusals(GPU, seen_of(GPU, half(5 * 10**9)), {}) == []
    (problem,) = refusals(GPU, seen_of(GPU, half(5 * 10**9 - 1000)), {})
    assert problem.message == "/var/lib/llamaherd/models has 5.0 GB free, and up to 5.0 GB are needed"
    assert problem.help.startswith("`herd models prune duo` would free up to 7.0 GB; or free 1.0 kB there")


OBSTACLES: dict[str, tuple[Drift, list[str]]] = {
    "another system": (host(os="debian-12"), ["runs debian-12, but the inventory declares debian-13"]),
    "no systemd": (host(systemd=False), ["systemd does not run here"]),
    "nothing of it": (host(os="", systemd=False), ["this host has no system in", "systemd"]),
    "port taken, unit stopped": (unit(active="inactive"), ["port 8080 of instance `chat` is taken"]),
    "port taken, unit gone": (host(units={}), ["port 8080"]),
    "port taken, container exited": (container(status="exited"), ["port 8081"]),
    "port taken by a program": (
        together(host(units={}), having(holders={8080: Holder(7, "nc", "")})),
        ["port 8080 of instance `chat` is taken by nc (process 7)"],
    ),
    "port taken by a container": (
        together(
            container(status="exited"),
            having(holders={8081: Holder(7, "docker-proxy", "web")}),
        ),
        ["port 8081 of instance `drafter` is taken by container web"],
    ),
    "port ours, paused": (container(status="paused"), []),
    "port ours, made anew just now": (
        together(
            container(status="created"),
            having(holders={8081: Holder(7, "docker-proxy", "llama-drafter")}),
        ),
        [],
    ),
    "port ours, still loading": (unit(active="activating"), []),
    "port free, unit gone": (
        together(host(units={}), host(listening=frozenset())),
        [],
    ),
    "disk full, nothing to do": (free_on_disk(0), []),
    "disk full, a build to do": (
        together(free_on_disk(10**9), host(builds={})),
        ["/var/lib/llamaherd/models has 1.0 GB free, and up to 2.0 GB are needed"],
    ),
    "disk full, a build under way": (
        together(free_on_disk(0), having(builds={CPU.builds[0].id: "building"})),
        [],
    ),
    "disk full, a model to send": (
        together(free_on_disk(10**8), host(stored={})),
        ["/var/lib/llamaherd/models has 100 MB free, and up to 253 MB are needed"],
    ),
    "models have a disk of their own, full": (
        together(free_on_disk(10**12, models=10**8), host(stored={})),
        ["/var/lib/llamaherd/models has 100 MB free, and up to 253 MB are needed"],
    ),
    "models have a disk of their own, the other is full": (
        together(free_on_disk(0, models=10**12), host(stored={})),
        [],
    ),
    "a store on another machine": (
        together(store(kind="nfs4"), host(stored={})),
        ["/var/lib/llamaherd/models is on another machine (nfs4)"],
    ),
    "a store that is read-only": (
        together(store(writable=False), host(stored={})),
        ["/var/lib/llamaherd/models is on a filesystem that is mounted read-only"],
    ),
    "a store that is read-only and has all": (store(writable=False), []),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_what_stands_in_the_way(case: str) -> None:
    drift, words = OBSTACLES[case]
    found = refusals(CPU, seen_of(CPU, drift), {"a5" * 32: 253 * 10**6})
    assert len(found) == len(words)
    for problem, part in zip(found, words, strict=True):
        assert part in problem.message
        assert problem.help in str(problem)


def test_a_renamed_instance_may_keep_its_port() -> None:
    declared = cpu_rig()
    declared["instances"]["talk"] = declared["instances"].pop("chat")
    assert refusals(planned(declared), seen_of(CPU), {}) == []
