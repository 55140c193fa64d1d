"""What is picked out of plans, and hosts that are otherwise: what texts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from llamaherd.gguf.header import Header
from llamaherd.host.state import HostState, PackageState, ScriptState, SystemState, TextState, WslState
from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockedLocal
from llamaherd.onhost.engine_memory import EstimateInput
from llamaherd.onhost.services import ServiceState
from llamaherd.pipeline import engine_estimate as asking
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.plan import (
    RAM,
    BuildPlan,
    Estimate,
    GatewayFigures,
    Grows,
    Holds,
    InstancePlan,
    Plan,
    PowerPlan,
    TextFile,
    ToolkitPlan,
)
from llamaherd.role.changes import Change, DeferredVerb, Report, RunScript, unit_spec
from roles.chat_page import KEY_FILE as CHAT_KEY
from roles.chat_page import changes_with as chat_changes
from roles.gateway import GatewayState
from roles.gateway import changes_with as gateway_changes
from roles.gateway.config import configuration, spec_of
from roles.gateway.onhost import RunningState
from roles.models import ModelSource, fetch_job, to_fetch
from roles.monitoring import MonitoringState
from roles.power import PowerState
from roles.serve.blue_green import candidate_files, candidate_spec
from tests.render.plans import (
    DRIVER,
    GATEWAY,
    GPU,
    HELD,
    WATCHING,
    WSL,
    WSL_NAT,
)
from tests.support.gateway import as_written, gateway_files, gateway_of, keys_of
from tests.support.ours import parse_state
from tests.support.prometheus import monitored
from tests.support.rigs import converged, gpu_rig, hub_lock
from tests.support.states import edited, with_driver


def instance(plan: Plan, name: str) -> InstancePlan:
    return next(instance for instance in plan.instances if instance.name == name)


def build(plan: Plan, engine: str) -> BuildPlan:
    return next(build for build in plan.builds if build.engine == engine)


def unheld() -> HostState:
    """As planned, but that the unit which holds GPUs never ran."""
    seen = parse_state(converged(HELD, {}))
    return seen.with_parts(replace(PowerState.of(seen), unit=None))


def chat(wanted: Plan) -> list[Change]:
    """What makes the page on a virgin host."""
    assert wanted.chat
    key = TextFile(path=CHAT_KEY, text="a key", mode="0400", owner=wanted.chat.number)
    return chat_changes(wanted.chat, HostState(), [key])


def gateway(how: str = "") -> list[Change]:
    """Return what makes a virgin host a gateway; or one whose configuration, or whose users, are others'."""
    wanted = gateway_of(GATEWAY)
    keys = keys_of(wanted)
    seen = HostState()
    if how:
        spec, port = spec_of(configuration(wanted, keys).text).split("/")
        unit = ServiceState("active", "enabled", False, unit_spec(wanted.unit))
        read = RunningState("other" if how == "reload" else spec, int(port), maps_are_read=False)
        seen = HostState.of(GatewayState(unit, read))
        seen = replace(seen, files={file.path: as_written(file) for file in gateway_files(wanted, keys)})
    return gateway_changes(wanted, seen, keys)


def power(plan: Plan) -> PowerPlan:
    """How the GPUs of a plan are held."""
    assert plan.power
    return plan.power


def driver_file(plan: Plan, part: str) -> str:
    """What apt is told of the driver."""
    assert plan.driver
    return next(file.text for file in plan.driver.files if part in file.path)


def other_driver() -> HostState:
    """As planned, but that the driver and its tools are of another branch, and the next kernel has no headers."""
    seen = parse_state(converged(DRIVER, {}))
    others = {name: PackageState("570.211.01-1", "nvidia") for name in ("libnvidia-compute-570", "libcuda1")}
    seen = with_driver(seen, packages={**seen.driver.packages, **others})
    return edited(seen, machine=replace(seen.system.machine, next_kernel="6.8.0-90-generic"))


def not_loaded() -> HostState:
    """As planned, but that nothing has loaded the driver yet."""
    seen = parse_state(converged(DRIVER, {}))
    return with_driver(seen, loaded=None)


def toolkit(plan: Plan) -> ToolkitPlan:
    """The CUDA toolkit of a plan."""
    assert plan.toolkit
    return plan.toolkit


def cards_order(plan: Plan) -> str:
    """When Docker starts, with GPUs for containers."""
    assert plan.runtime
    assert plan.runtime.toolkit
    return plan.runtime.toolkit.order.text


def in_wsl(profile: str = "/mnt/c/Users/tom", *, systemd: bool = True) -> HostState:
    """A distribution as Windows' own user set it up: a file of the user's, and an old script of ours."""
    seen = WslState(
        profiles={profile: True},
        files={f"{profile}/.wslconfig": TextState(0, b"# mine\r\n[wsl2]\r\nmemory=8GB\r\n")},
        scripts={f"{profile}/llamaherd/gpu-power.ps1": ScriptState("0" * 64, "")},
    )
    return HostState.of(SystemState(systemd=systemd, wsl="6.6.87.2-microsoft-standard-WSL2"), seen)


def windows_scripts() -> dict[str, str]:
    """What Windows is to run, with both ways in from the LAN; there, lines end in CR and LF."""
    assert WSL.wsl
    assert WSL_NAT.wsl
    texts = {PurePosixPath(each.path).name: each.text for each in WSL_NAT.wsl.scripts}
    texts["mirrored.ps1"] = next(each.text for each in WSL.wsl.scripts if each.path.endswith("port-proxy.ps1"))
    return {name: text.replace("\r\n", "\n") for name, text in texts.items()}


def script(steps: Sequence[Change], of: int = -1) -> str:
    """The text of one step."""
    how = steps[of].how
    assert isinstance(how, RunScript)
    return how.script


def hub(_plan: Plan, wanted: Sequence[str], _say: Report) -> list[ModelSource]:
    """A hub that wants a token."""
    return [ModelSource("hub", {sha256: f"https://hub.lan/{sha256}" for sha256 in wanted}, "hf_token")]


def fetch_id() -> str:
    """What the fetch is called that the GPU rig wants."""
    return str(fetch_job(GPU, to_fetch(GPU, HostState()), [])["id"])


def made(steps: Sequence[Change]) -> list[Change]:
    """Return the first step, whose input is made when its turn comes, with that input."""
    how = steps[0].how
    assert isinstance(how, DeferredVerb)
    return [replace(steps[0], how=how.make(print))]


def memory_input(*names: str) -> EstimateInput:
    """Return what the tool runs on for these instances of the rig with GPUs."""
    header = Header(architecture="llama")
    lock = Lock(
        models=tuple(model.model_copy(update={"header": header}) for model in hub_lock().models),
        files=(LockedLocal(sha256="a5" * 32, size=10**9, data_offset=10**6, header=header),),
    )
    facts = locked_facts(Rig.model_validate(gpu_rig()), lock)
    asked = [asking.estimate_request(facts, GPU, instance(GPU, name)) for name in names]
    return asking.estimate_input(GPU, [each for each in asked if isinstance(each, asking.EstimateRequest)], {})


def watched_gateway() -> str:
    """What HAProxy reads on a rig that another one watches."""
    figures = GatewayFigures(listen="0.0.0.0", port=8405, asker="192.0.2.1")
    watched = gateway_of(GATEWAY).model_copy(update={"figures": figures})
    return configuration(watched, keys_of(watched)).text


def watching(read: str) -> HostState:
    """A host where all runs that watches, and has read this."""
    units = {PurePosixPath(unit.path).name: unit for unit in monitored(WATCHING["box"]).units}
    seen = {name: ServiceState("active", "enabled", False, unit_spec(unit)) for name, unit in units.items()}
    return HostState.of(MonitoringState(seen, read))


def taking(planned: InstancePlan) -> InstancePlan:
    """An instance of which it is certain what it takes."""
    held = [(card.name, 20 << 30) for card in planned.server.cards] + [(RAM, 9 << 30)]
    holds = tuple(
        Holds(where=where, size=24 << 30, weights=size, kv=0, state=0, compute=0, draft=0) for where, size in held
    )
    memory = Estimate(source="arithmetic", holds=holds, doubts=(), grows=Grows(), resident=7 << 30)
    return planned.model_copy(update={"memory": memory})


def beside_text(plan: Plan, name: str, file: int) -> str:
    """A file of what is tried beside an instance."""
    planned = instance(plan, name)
    return candidate_files(planned, candidate_spec(planned.server, 61000))[file].text
