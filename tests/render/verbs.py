"""Inputs of the verbs that change servers, as the documents that hosts read, by the names of their golden files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from llamaherd.host.program import request
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.layout import INCOMING
from llamaherd.onhost.files import DriftInput
from llamaherd.onhost.servers import ContainerState, UnitState
from llamaherd.onhost.store import ReceiveInput, StoreInput
from llamaherd.role.apt import nvidia_repository, repository_changes
from llamaherd.role.changes import Change, RunVerb
from llamaherd.store.files import files_once, hash_input
from llamaherd.store.holdings import prune_input
from llamaherd.store.unused import remove_input
from roles.base import base_changes, package_changes
from roles.container_runtime import docker_changes
from roles.container_runtime import inspection_input as inspected_docker
from roles.container_runtime import toolkit_changes as container_toolkit_changes
from roles.cuda_toolkit import inspection_input as inspected_toolkit
from roles.cuda_toolkit import toolkit_changes
from roles.engines import build_changes
from roles.engines import inspection_input as inspected_builds
from roles.models import begin_changes, model_changes, share_input
from roles.models import inspection_input as inspected_store
from roles.power import inspection_input as inspected_power
from roles.serve.blue_green import candidate_input
from roles.serve.changes import server_changes
from roles.serve.exchange import Member, exchange_change
from roles.serve.plan import image_changes
from roles.serve.removal import removal_changes
from roles.serve.state import inspection_input as inspected_servers
from roles.serve.transaction import UndeclaredServer
from roles.serve.verify import verification_input as verified_servers
from tests.render.pieces import build, fetch_id, hub, instance, made, taking
from tests.render.plans import CPU, GPU, NEIGHBOUR, PULLED, RELEASE, REMOVALS, UNUSED, WATCHER
from tests.support.rigs import gpu_rig
from tests.support.states import host_with

GOING = (
    UndeclaredServer("old", unit=True, container=False, port=True, serves=True),
    UndeclaredServer("boxed", unit=False, container=True),
)
"""Servers that are not declared any more, and serve until the new ones do."""


def document(changes: Sequence[Change]) -> str:
    """Return the document of one change, indented."""
    (change,) = changes
    assert isinstance(change.how, RunVerb)
    return indented(change.how.verb, change.how.given)


def indented(verb: str, given: object) -> str:
    """Return the document of a verb, indented."""
    return json.dumps(json.loads(request(verb, given)), indent=2, ensure_ascii=False) + "\n"


def queried(verb: str, given: object) -> list[Change]:
    """Return a verb that no change of a plan runs, as one."""
    return [Change("update", "host", verb, (), RunVerb(verb, given))]


def received() -> ReceiveInput:
    """Return a file that the controller sends, and where another run may have admitted it."""
    admitted = "/var/lib/llamaherd/models/local/1111111111111111/a model.gguf"
    return ReceiveInput(f"{INCOMING}/{'1' * 64}", 4096, (admitted,), 150, 86400)


def unit_with_candidate() -> list[Change]:
    """Return the switch of a unit with a candidate."""
    chat = taking(instance(CPU, "chat"))
    return server_changes(chat, HostState(), None, candidate=candidate_input(CPU, chat))


def exchange() -> list[Change]:
    """Return the change of a unit and a container that take each other's ports, in place of servers that go."""
    port = instance(CPU, "chat").endpoint.port
    state = host_with(containers={"llama-drafter": ContainerState("running", "healthy", "", "", port)})
    found = []
    for each in (instance(CPU, "chat"), instance(CPU, "drafter")):
        partners = [other.service for other in CPU.instances if other is not each]
        (switch,) = server_changes(each, state, None, going=GOING, partners=partners)
        found.append(Member(each, switch))
    return [exchange_change(CPU, found, GOING, state)]


VERBS: dict[str, Callable[[], Sequence[Change]]] = {
    "accounts": lambda: list(base_changes(CPU, HostState()))[:1],
    "open": lambda: list(base_changes(CPU, host_with(closed=["/mnt/a b/model.gguf"])))[1:2],
    "install": lambda: package_changes(CPU, host_with(packages={"python3"})),
    "add_repository": lambda: repository_changes(nvidia_repository(Rig.model_validate(gpu_rig())), HostState()),
    "build_llama_cpp_cuda_git": lambda: build_changes(build(GPU, "main"), HostState()),
    "install_release_cuda": lambda: build_changes(build(RELEASE, "main"), HostState()),
    "build_ik_cuda_overlay_url": lambda: build_changes(build(GPU, "ik"), HostState()),
    "build_llama_cpp_cpu": lambda: build_changes(build(CPU, "main"), HostState())[2:],
    "admit_source": lambda: build_changes(build(CPU, "main"), HostState())[1:2],
    "vouch": lambda: build_changes(build(CPU, "main"), host_with(builds={build(CPU, "main").id: "intact"})),
    "install_docker": lambda: docker_changes(CPU, HostState()),
    "wire_docker": lambda: container_toolkit_changes(GPU, HostState())[-1:],
    "install_container_toolkit": lambda: container_toolkit_changes(GPU, HostState())[-2:-1],
    "put_files": lambda: toolkit_changes(GPU, HostState())[:1],
    "switch_unit": unit_with_candidate,
    "switch_container": lambda: server_changes(instance(PULLED, "drafter"), HostState(), "a key"),
    "exchange": exchange,
    "fetch_begun": lambda: made(begin_changes(GPU, HostState(), hub, WATCHER)),
    "fetch_joined": lambda: begin_changes(GPU, host_with(fetch=fetch_id()), hub, WATCHER),
    "fetch_awaited": lambda: made(model_changes(GPU, HostState(), hub, WATCHER)[1:]),
    "models_admitted": lambda: model_changes(GPU, HostState(), hub, WATCHER)[-1:],
    "share": lambda: queried("models.share", share_input(NEIGHBOUR, ["1" * 64, "2" * 64], "0123456789ab", "token")),
    "store_look": lambda: queried("llamaherd.store.inspect", StoreInput("/var/lib/llamaherd/models")),
    "store_prune": lambda: queried("llamaherd.store.prune", prune_input("/var/lib/llamaherd/models", REMOVALS)),
    "store_hash": lambda: queried("llamaherd.store.hash", hash_input(files_once(GPU))),
    "receive": lambda: queried("llamaherd.store.receive", received()),
    "drift_write": lambda: queried("llamaherd.files.write_drift", DriftInput("llamaherd_diff_seconds 7\n")),
    "prune_remove": lambda: queried("llamaherd.removal.remove", remove_input(UNUSED, 3)),
    "image": lambda: image_changes(CPU.images[0], HostState()),
    "remove": lambda: removal_changes(CPU, host_with(units={"llama-old": UnitState("", "", False, "", "")})),
}
INSPECTIONS: dict[str, Callable[[], str]] = {
    "inspect_servers": lambda: indented("serve.inspection.inspect", inspected_servers(GPU)),
    "inspect_builds": lambda: indented("engines.inspect", inspected_builds(GPU)),
    "inspect_store": lambda: indented("models.store.inspect", inspected_store(GPU)),
    "inspect_docker": lambda: indented("container_runtime.inspect", inspected_docker(GPU)),
    "inspect_cuda_toolkit": lambda: indented("cuda_toolkit.inspect", inspected_toolkit(GPU)),
    "inspect_power": lambda: indented("power.inspect", inspected_power(GPU)),
    "verify_servers": lambda: indented("serve.verification.verify", verified_servers(GPU)),
}
