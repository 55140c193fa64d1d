"""The five rigs' own arguments, put to the real servers that were built on the box."""

import shlex

import pytest
from testinfra.host import Host

from llamaherd.inventory.schema import Rig
from llamaherd.layout import KEYS
from tests.support.examples import fleet, locked
from tests.support.ours import plan

APRIL = "67268c8fd"
"""The version of ik_llama.cpp that the box has built; duo's own spells MTP otherwise."""


def of_april(rig: Rig) -> Rig:
    engines = {
        name: engine.model_copy(update={"flags": APRIL}) if engine.kind == "ik_llama.cpp" else engine
        for name, engine in rig.engines.items()
    }
    return rig.model_copy(update={"engines": engines})


INSTANCES = {
    f"{name}-{instance.name}": instance
    for name, rig in fleet().rigs.items()
    for instance in plan(of_april(rig), locked()).instances
}

KINDS = {
    f"{name}-{served}": rig.engines[instance.engine].kind
    for name, rig in fleet().rigs.items()
    for served, instance in rig.instances.items()
}
"""What runs them: an image's engine, too, is built on the box."""


def test_there_are_nine() -> None:
    assert len(INSTANCES) == 9


@pytest.mark.parametrize("case", INSTANCES)
def test_the_server_understands_its_arguments(asked: Host, case: str) -> None:
    """`--version` after all others: what the server does not understand, it refuses before (docs/architecture.md)."""
    # A key is read at once, and those rigs' keys are not here.
    arguments = shlex.join(
        "/dev/null" if word.startswith(str(KEYS)) else word for word in INSTANCES[case].server.arguments
    )
    ended = asked.run(f"timeout 120 {server(asked, KINDS[case])} {arguments} --version")
    assert ended.rc == 0, ended.stderr
    assert "version:" in ended.stderr + ended.stdout


def test_a_server_refuses_what_it_does_not_understand(asked: Host) -> None:
    """Or the tests above could not fail."""
    arguments = shlex.join(INSTANCES["duo-reasoner"].server.arguments)
    ended = asked.run(f"timeout 120 {server(asked, KINDS['duo-reasoner'])} {arguments} --mtp-draft 2 --version")
    assert ended.rc != 0


def server(asked: Host, kind: str) -> str:
    """The server of its kind that is built on the box."""
    built = asked.check_output(f"ls -d /opt/llamaherd/builds/{kind}-*/bin/llama-server")
    return str(built).split()[0]
