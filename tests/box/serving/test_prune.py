"""What nothing needs any more goes from the box, and what a way back needs stays."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.box.bench import Bench
from tests.support.envelope import the_rig

OLD = "llama.cpp-000000000000"
ARCHIVES = "/var/cache/apt/archives"


@pytest.fixture
def littered(converged: Bench) -> Iterator[Bench]:
    """The box with a build, an image, a source and a package that nothing needs; what other tests have left is gone.

    Packages lie in a folder that other boxes use, too: it is hidden meanwhile.
    """
    converged.sh(f"mount -t tmpfs none {ARCHIVES} && mkdir {ARCHIVES}/partial")
    try:
        pruned(converged, "--yes", "--keep", "0")
        converged.sh(
            f"echo much >{ARCHIVES}/a_1_all.deb && cd /opt/llamaherd/builds && cp -a $(ls | head -n 1) {OLD} && "
            f"tar -C {OLD} -c manifest.json | docker import - llamaherd/engine:{OLD}-abcdef && "
            f"echo much >/var/cache/llamaherd/sources/{'ab' * 32}"
        )
        yield converged
    finally:
        converged.sh(f"umount {ARCHIVES}; rm -rf /opt/llamaherd/builds/{OLD}", check=False)


def pruned(bench: Bench, *options: str) -> Any:
    """What it says to machines."""
    ended = bench.herd("prune", "box", "--json", *options)
    assert ended.code == 0, ended.output
    return the_rig(ended.output)


def test_what_nothing_needs_goes_and_no_server_notices(littered: Bench) -> None:
    before = littered.running()
    expected = {f"build {OLD}", f"image llamaherd/engine:{OLD}-abcdef", f"source {'ab' * 32}", "packages apt"}
    assert set(pruned(littered, "--dry-run")["removals"]) == expected
    assert set(pruned(littered, "--yes")["outcome"]["things"]["removed"]) == expected
    assert pruned(littered, "--yes")["removals"] == []
    littered.unchanged(before)
    again = littered.deploy()
    assert (again.code, again.changes) == (0, 0), again.output


def test_what_a_release_needs_stays_and_can_come_back(bench: Bench) -> None:
    """Its engine's build and its model, as long as it is one of the three newest."""
    rig = bench.rig()
    del rig["instances"]["ik-chat"], rig["engines"]["ik"]
    bench.declare(rig)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    found = pruned(bench, "--dry-run")
    (ik,) = [each for each in found["things"] if each["kind"] == "build" and each["name"].startswith("ik_llama.cpp")]
    assert ik["needed_by"]
    assert all(by.startswith("release ") for by in ik["needed_by"])
    assert f"build {ik['name']}" in pruned(bench, "--dry-run", "--keep", "0")["removals"]
    back = bench.herd("rollback", "box", "--yes")
    assert back.code == 0, back.output
    assert bench.answers("ik-chat")
