"""A real host for the tests that need one: made for the session, removed with it; its caches stay."""

from collections.abc import Iterator

import pytest

from llamaherd.box.cli import BOX
from llamaherd.box.host import BoxHost


@pytest.fixture(scope="session")
def box_host() -> Iterator[BoxHost]:
    """A host of the tests' own, from nothing: never the box that scripts/box made."""
    host = BoxHost(name="llamaherd-test", port=2202, folder=BOX / "llamaherd-test")
    host.down()
    host.up()
    yield host
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
