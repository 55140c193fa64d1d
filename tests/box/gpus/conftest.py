"""Rigs with GPUs, of each release of Debian, made for the session and removed with it."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.box.bench import Ended
from tests.box.gpus.rigs import DEBIANS, GpuRig, bare
from tests.support.fake_kernel import RTX_3090
from tests.support.nvidia_packages import debian_driver, headers, metapackages, pinning


@pytest.fixture(scope="session", params=DEBIANS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuRig]:
    """A rig with a GPU, and nothing else; its repository has three branches, and what leads astray.

    With LLAMAHERD_KEEP=1 it is not removed afterwards.
    """
    made = bare(request.param, tmp_path_factory.mktemp("rig"))
    try:
        made.fit([RTX_3090])
        drivers = [
            package for version in ("580.95.05", "580.105.08", "590.48.01") for package in debian_driver(version)
        ]
        traps = [*metapackages("580.105.08", "13.0"), *metapackages("590.48.01", "13.1")]
        made.repository.publish(*drivers, *traps, pinning("580"), pinning("590"), pinning("595"), headers(made.kernel))
        with made.repository:
            yield made
    finally:
        if not os.environ.get("LLAMAHERD_KEEP"):
            made.host.down()


@pytest.fixture(scope="session")
def first(rig: GpuRig) -> Ended:
    """The first run, to the bare rig, which boots once. Where it fails, what sshd logged follows what it printed."""
    rig.declare(rig.rig())
    boots = rig.host.boots()
    ended = rig.deploy()
    assert rig.host.boots() == boots + 1 or ended.code, ended.output
    if ended.code:
        log = rig.host.exec("journalctl", "-b", "-u", "ssh", "-n", "40", "-o", "cat", "--no-pager", check=False)
        return replace(ended, output=f"{ended.output}\n{log}")
    return ended


@pytest.fixture
def driven(rig: GpuRig, first: Ended) -> GpuRig:
    """The rig with a driver of branch 580 or later, whose repository answers, whatever a test before has done to it."""
    assert first.code == 0, first.output
    rig.repository.status = 200
    return rig
