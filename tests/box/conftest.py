"""A real host for the tests that need one: made for the session, removed with it; its caches stay."""

import os
import secrets
import time
from collections.abc import Generator, Iterator

import pytest
from testinfra import get_host
from testinfra.host import Host

from box import downloads, tiny_moe
from box.cli import BOX, CACHE, TINY_MOE
from box.host import BoxHost
from tests.box.bench import Bench, Ended
from tests.box.slot import OVER, PACKAGES, RIG, RIG_PORT, WITH_IK, compiling
from tests.box.supply import STORE, TOKEN, Supply
from tests.support.hub_server import Hub

ENGINES: tuple[downloads.Source, ...] = (downloads.LLAMA_CPP, *((downloads.IK_LLAMA_CPP,) if WITH_IK else ()))
"""What the rig's engines are compiled from, the one that all lanes need first."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start no test after the time that `scripts/test --minutes` gave."""
    if time.monotonic() > float(os.environ.get("LLAMAHERD_UNTIL", "inf")):
        pytest.skip(OVER)


@pytest.fixture(scope="session")
def box_host() -> Iterator[BoxHost]:
    """A host of the tests' own, from nothing: never the box that scripts/box made.

    With LLAMAHERD_KEEP=1 it is neither removed afterwards nor made anew before, for those who write tests.
    """
    keep = bool(os.environ.get("LLAMAHERD_KEEP"))
    host = BoxHost(name=RIG, port=RIG_PORT, folder=BOX / RIG, packages=PACKAGES)
    try:
        if not keep:
            host.down()
        host.up()
        yield host
    finally:
        if not keep:
            host.down()


@pytest.fixture(scope="session")
def ssh(box_host: BoxHost) -> list[str]:
    """The argv that runs what follows it on the host, as its user, trusting its known key only."""
    options = {
        "IdentityFile": box_host.key,
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": box_host.known_hosts,
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
    }
    config = [f"-o{name}={value}" for name, value in options.items()]
    return ["ssh", "-F", "/dev/null", *config, "-p", str(box_host.port), "owner@127.0.0.1"]


@pytest.fixture(scope="session")
def fleet_folder(box_host: BoxHost, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The rig declared in a folder of its own, and all that it names fetched; not yet deployed."""
    artifacts: tuple[downloads.Artifact, ...] = (*ENGINES, downloads.GEMMA)
    for artifact in artifacts:
        downloads.fetch(artifact, CACHE)
    tiny_moe.write(TINY_MOE)
    bench = Bench(box_host, tmp_path_factory.mktemp("fleet"))
    bench.key_file.write_text(f"canary-{secrets.token_hex(16)}\n")
    bench.key_file.chmod(0o600)
    bench.declare(bench.rig())
    return bench


@pytest.fixture(scope="session")
def first_run(fleet_folder: Bench) -> Ended:
    """The deployment to a bare host: it compiles two engines. As talkative as it can be, for whom it may tell."""
    with compiling(fleet_folder.host, *ENGINES):
        return fleet_folder.deploy("-vvv", "--diff")


@pytest.fixture(scope="session")
def converged(fleet_folder: Bench, first_run: Ended) -> Bench:
    """The rig, deployed."""
    assert first_run.code == 0, first_run.output
    return fleet_folder


@pytest.fixture
def bench(converged: Bench) -> Iterator[Bench]:
    """The rig, deployed, for a test that changes it: afterwards it is as declared again."""
    yield converged
    converged.declare(converged.rig())
    ended = converged.up()  # where nothing is to do, a third of what pyinfra takes
    assert ended.code == 0, ended.output


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test has failed, the next one that uses the deployed rig finds it deployed all the same."""
    report = yield
    used = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Bench)]
    if call.when == "call" and report.failed and used:
        used[0].restore()
    return report


@pytest.fixture(scope="session")
def asked(converged: Bench) -> Host:
    """The deployed host as testinfra sees it: by the OpenSSH client, as root."""
    host = converged.host
    options = (
        f"-F /dev/null -o IdentitiesOnly=yes -o UserKnownHostsFile={host.known_hosts} -o StrictHostKeyChecking=yes"
    )
    return get_host(
        f"ssh://owner@127.0.0.1:{host.port}", ssh_identity_file=str(host.key), ssh_extra_args=options, sudo=True
    )


@pytest.fixture(scope="module")
def supplied(converged: Bench) -> Iterator[Supply]:
    """A private hub where the host can reach it. Afterwards the rig is as declared again."""
    address = converged.sh("ip route show default | cut -d ' ' -f 3")
    with Hub({}, token=TOKEN, host=address) as hub:
        yield Supply(converged, hub)
    converged.sh("systemctl stop llamaherd-fetch", check=False)
    converged.sh(f"rm -rf {STORE}/llamaherd {STORE}/.incoming/*", check=False)
    (converged.folder / "herd.lock").unlink()
    converged.declare(converged.rig())
    ended = converged.deploy()
    assert ended.code == 0, ended.output


@pytest.fixture
def supply(supplied: Supply) -> Supply:
    """That hub, with a model for the drafter that no host has had yet."""
    supplied.push()
    return supplied
