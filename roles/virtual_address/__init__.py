"""Virtual address: one address that moves between two gateways, by the distribution's keepalived in a unit of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import Gateway
from llamaherd.layout import ADDRESS, ADDRESS_PROGRAM, ADDRESS_RUN, ADDRESS_UNIT, ASK_USER, GATEWAY_UNIT
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, Plan, TextFile, VirtualAddressPlan
from llamaherd.plan.instance import Endpoint
from llamaherd.render import render
from llamaherd.role.changes import Action, Change, RunVerb, file_differences, unit_file, unit_spec, written_files
from llamaherd.role.preflight import PreflightRow, Refusal
from llamaherd.role.reach import Network, networks
from llamaherd.role.report import Check, restart_reasons, service_check, service_probe, unit_problems
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.quoting import url_host
from roles.virtual_address.onhost import ApplyInput, Found

PACKAGES = frozenset({"iproute2", "keepalived"})
ROUTER = 117
"""The shared id of both rigs (VRRP's virtual router id). Another keepalived on these hosts, or a router of the network,
is more likely to have a small number, or one that ends an address."""
PRIORITIES = (150, 100)
"""Of the first and the second rig of `on`. They decide if neither rig has the address, or if both took it at once."""

_ROW = "virtual address"
_KIND = "virtual address"


def plan(planning: Planning) -> PlanPart:
    """Return the address, on the two rigs that it is declared for."""
    gateway, rig = planning.fleet.gateway if planning.fleet else None, planning.rig
    if gateway is None or gateway.address is None or rig.rig not in gateway.on:
        return PlanPart()
    made = plan_virtual_address(gateway, gateway.address, rig.rig, {**planning.rigs, rig.rig: rig})
    return PlanPart(packages=PACKAGES, fields={"virtual_address": made})


def plan_virtual_address(gateway: Gateway, address: str, here: str, rigs: Mapping[str, Rig]) -> VirtualAddressPlan:
    """Return a rig's part of the address."""
    own, peer = rigs[here], next(rigs[name] for name in gateway.on if name != here)
    priority = PRIORITIES[gateway.on.index(here)]
    config = _config(gateway, address, own, peer, priority)
    length = ip_address(address).max_prefixlen
    program = render("virtual_address/virtual-address.sh.j2", address=address, length=length, peer=peer.address)
    return VirtualAddressPlan(
        address=address,
        own=own.address,
        peer=peer.address,
        peer_rig=peer.rig,
        priority=priority,
        config=TextFile(path=str(ADDRESS / "keepalived.conf"), text=config),
        unit=_unit(here, config, program),
        program=TextFile(path=str(ADDRESS_PROGRAM), text=program, mode="0755"),
    )


def _config(gateway: Gateway, address: str, own: Rig, peer: Rig, priority: int) -> str:
    """Return keepalived's configuration without the interface, which is found on the host."""
    endpoint = Endpoint(listen=gateway.listen, port=gateway.port, models=(), streams=1)
    return render(
        "virtual_address/keepalived.conf.j2",
        rig=own.rig,
        user=ASK_USER,
        scheme="https" if gateway.tls else "http",
        host=endpoint.local_address,
        port=gateway.port,
        router=ROUTER,
        priority=priority,
        own=own.address,
        peer=peer.address,
        address=address,
        length=ip_address(address).max_prefixlen,
    )


def _unit(rig: str, config: str, program: str) -> TextFile:
    text = render(
        "virtual_address/address.service.j2",
        rig=rig,
        gateway=GATEWAY_UNIT,
        program=ADDRESS_PROGRAM,
        folder=ADDRESS,
        run=ADDRESS_RUN,
    )
    return unit_file(ADDRESS_UNIT, text, config, program)


@dataclass(frozen=True)
class AddressState(Found, StatePart):
    """The unit that runs keepalived."""


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield a host with another address than its rig, or with another network than that of the address."""
    made, own = plan.virtual_address, networks(state.system.addresses)
    if made is None or not own:
        return
    here = [each for each in own if each.ip == ip_address(made.own)]
    if not here:
        yield Refusal(
            f"the rig is known as {made.own}, which is no address of its host",
            f"it has {', '.join(sorted(str(each.ip) for each in own))}: name the one of the network that the gateways "
            "share, by `store: {share: {address: …}}` of the rig",
            _ROW,
        )
        return
    yield from _elsewhere(made, here)


def _elsewhere(made: VirtualAddressPlan, here: list[Network]) -> Iterator[Refusal]:
    """Yield the address, or the other host, if no network of this host contains them."""
    for address, what in ((made.address, "the virtual address"), (made.peer, f"rig {made.peer_rig}")):
        if not any(_in_use(address, each) for each in here):
            network = here[0].network
            yield Refusal(
                f"{what} is {address}, which no machine can have in the network of this rig, {network}",
                "both rigs and the address must be in one network: correct `address` in fleet.yaml, or what the rigs "
                "are known as",
                _ROW,
            )


def _in_use(address: str, network: Network) -> bool:
    """Return whether a machine of a network can have an address, unlike the first and last one of IPv4."""
    found, whole = ip_address(address), network.network
    if found.version != network.version or found not in whole:
        return False
    return found.version == 6 or found not in (whole.network_address, whole.broadcast_address)


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield whether keepalived runs."""
    if plan.virtual_address:
        unit = AddressState.of(state).unit
        found = f"its unit is {unit.active}" if unit else "none"
        yield PreflightRow(_ROW, found, f"{plan.virtual_address.address}, with {plan.virtual_address.peer_rig}")


def address_changes(plan: Plan, state: HostState) -> list[Change]:
    """Apply the planned keepalived."""
    made = plan.virtual_address
    if made is None:
        return []
    unit = AddressState.of(state).unit
    restart = restart_reasons(unit, unit_spec(made.unit))
    reasons = (*restart, *file_differences(made.files, state), *unit_problems(unit))
    if not reasons:
        return []
    config, program, unit_file = written_files([made.config, made.program, made.unit])
    given = ApplyInput(config=config, program=program, unit=unit_file, restart=bool(restart))
    action: Action = "create" if unit is None else "restart" if restart else "update"
    how = RunVerb("virtual_address.apply", given, "starting what gives the gateway its virtual address")
    return [Change(action, _KIND, made.address, reasons, how)]


def address_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has none, or has it elsewhere."""
    if plan.virtual_address or AddressState.of(state).unit is None:
        return []
    why = ("this rig has no virtual address any more",)
    how = RunVerb("virtual_address.remove", NoInput(), "ending the virtual address")
    return [Change("remove", _KIND, ADDRESS_UNIT, why, how)]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of its unit, its interfaces, and the gateway at the address."""
    made, gateway = plan.virtual_address, plan.gateway
    if made is None or gateway is None:
        return
    yield service_probe("virtual address unit", ADDRESS_UNIT)
    yield Probe("virtual address", "", (str(ADDRESS_PROGRAM), "where"), errors=True)
    scheme = "https" if gateway.secure else "http"
    url = f"{scheme}://{url_host(made.address)}:{gateway.port}/healthz"
    # Wherever it is, the gateway there responds at it.
    requested = ("curl", "-q", "-s", "-k", "--noproxy", "*", "--max-time", "5", "-o", "/dev/null")
    yield Probe("virtual address health", "", (*requested, "-w", r"%{http_code}\n", url), errors=True)


def judge(judging: Judging) -> Verified:
    """Return the checks of the address."""
    made = judging.plan.virtual_address
    return Verified(checks=tuple(address_checks(made, judging.outputs))) if made else Verified()


def address_checks(made: VirtualAddressPlan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield checks of the unit, and of the server at the address."""
    yield service_check("virtual address unit", outputs.get(("virtual address unit", ""), ""), ADDRESS_UNIT)
    here = outputs.get(("virtual address", ""), "").strip() == f"{made.address} here"
    status = outputs.get(("virtual address health", ""), "").strip()
    where = "on this rig" if here else "on another host"
    if status == "200":
        yield Check("virtual address", True, f"{made.address} is {where}, and a gateway responds there")
    elif here:
        yield Check("virtual address", False, f"{made.address} is {where}, and no gateway responds there")
    else:
        yield Check("virtual address", False, f"no gateway responds at {made.address}: neither rig has it")


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Yield the address, and the other rig that has it."""
    made = plan.virtual_address
    if made:
        yield f"  address    {made.address}, shared with {made.peer_rig} ({made.peer}) by VRRP from {made.own}"


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the task after the gateway, which keepalived checks. If it fails, all others go on."""
    if plan.virtual_address:
        yield Task("an address that moves", lambda state, _: address_changes(plan, state), alone=True)


ROLE = Role(
    name="virtual_address",
    summary="If one of two gateways does not respond, the other gateway takes over its address.",
    plan=plan,
    brings=lambda plan: plan.virtual_address.files if plan.virtual_address else (),
    # Also where none is declared any more: what an earlier run has left is removed.
    inspection=Inspection("virtual_address.inspect", lambda plan: NoInput() if plan.of_fleet else None, AddressState),
    refusals=refusals,
    facts=facts,
    leftovers=address_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
