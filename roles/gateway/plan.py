"""Plan the gateway of a rig: its models, their servers' addresses, and their users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from llamaherd.engines import DIALECTS
from llamaherd.inventory.schema import LOCAL, Rig
from llamaherd.inventory.schema.fleet_file import Gateway, Monitoring, ServedModel, User, certified, split_served
from llamaherd.layout import GATEWAY, GATEWAY_FIGURES_PORT, GATEWAY_RUN, GATEWAY_TALK, GATEWAY_UNIT, GATEWAY_USER, UNITS
from llamaherd.plan import GatewayFigures, GatewayModel, GatewayPlan, GatewayServer, GatewayUser, TextFile, digest
from llamaherd.plan.server import Endpoint
from llamaherd.render import render
from llamaherd.role.role import Planning, PlanPart

PACKAGE = "haproxy"
FILES = 65536
"""Open files: two for each connection, also of a process that ends while another starts."""
_PRIVILEGED = 1024


def plan(planning: Planning) -> PlanPart:
    """Return the gateway, on the rigs that it is declared for."""
    if planning.fleet is None:
        return PlanPart()
    declared, rig = planning.fleet.gateway, planning.rig
    if declared is None or rig.rig not in declared.on:
        return PlanPart(fields={"of_fleet": True})
    rigs = {**planning.rigs, rig.rig: rig}
    made = plan_gateway(declared, rig.rig, rigs, planning.fleet.monitoring)
    return PlanPart(packages=frozenset({PACKAGE}), fields={"of_fleet": True, "gateway": made})


def plan_gateway(
    declared: Gateway, rig: str, rigs: Mapping[str, Rig], monitoring: Monitoring | None = None
) -> GatewayPlan:
    """Return the gateway of this rig."""
    return GatewayPlan(
        rig=rig,
        listen=declared.listen,
        port=declared.port,
        certificate=declared.tls.certificate if declared.tls else None,
        private_key=declared.tls.key if declared.tls else None,
        authority=declared.tls.ca if declared.tls else None,
        names=_names(declared, rig, rigs) if declared.tls and declared.tls.ca else (),
        wait=declared.queue.wait,
        length=declared.queue.length,
        body=declared.body,
        models=tuple(_in_turn([_model(*each, rig, rigs) for each in sorted(declared.models.items())], declared, rigs)),
        users=tuple(_user(name, user, declared) for name, user in sorted(declared.users.items())),
        unit=_unit(rig, declared.port),
        talk=TextFile(path=str(GATEWAY_TALK), text=render("gateway/gateway-talk.py"), mode="0755"),
        figures=_figures(monitoring, rig, rigs) if monitoring and monitoring.watches(rig) else None,
        virtual_address=declared.address,
    )


def _names(declared: Gateway, rig: str, rigs: Mapping[str, Rig]) -> tuple[str, ...]:
    """Return the gateway's names: on its own host, for other machines by the inventory, and as declared."""
    tls, here = declared.tls, rigs[rig]
    known = ["localhost", "127.0.0.1", "::1", here.connect.host, here.address, *(tls.names if tls else ())]
    if not ip_address(declared.listen).is_unspecified:
        known.append(declared.listen)
    if declared.address:
        known.append(declared.address)
    return tuple(sorted({held for name in known if name != LOCAL and (held := certified(name))}))


def _in_turn(models: list[GatewayModel], declared: Gateway, rigs: Mapping[str, Rig]) -> Iterator[GatewayModel]:
    """Yield models, those of one swapping server with one queue and the lowest of their limits."""
    queues = {name: names for names in swapping(declared.models, rigs).values() for name in names}
    servers = {model.name: model.servers for model in models}
    for model in models:
        names = queues.get(model.name, [])
        least = min((server.streams for name in names for server in servers[name]), default=0)
        shared = tuple(server.model_copy(update={"streams": least}) for server in model.servers)
        yield model.model_copy(update={"backend": ":".join(names), "servers": shared}) if names else model


def _figures(monitoring: Monitoring, here: str, rigs: Mapping[str, Rig]) -> GatewayFigures:
    """Return the address of metrics: on the watching rig its own host's; elsewhere that rig's address has access."""
    watching = rigs.get(monitoring.on)
    if watching is None or watching.rig == here:
        return GatewayFigures(listen="127.0.0.1", port=GATEWAY_FIGURES_PORT)
    asker = watching.address
    every = "::" if ":" in asker else "0.0.0.0"
    return GatewayFigures(listen=every, port=GATEWAY_FIGURES_PORT, asker=asker)


def _user(name: str, user: User, declared: Gateway) -> GatewayUser:
    models = sorted(user.models or declared.models)
    return GatewayUser(name=name, key=user.key, streams=user.streams, models=tuple(models))


def _model(name: str, model: ServedModel, here: str, rigs: Mapping[str, Rig]) -> GatewayModel:
    places = _places(model, rigs)
    keys = [rigs[rig].instances[instance].api_key for rig, instance in places]
    return GatewayModel(
        name=name,
        aliases=tuple(sorted(model.aliases)),
        servers=tuple(_server(rigs[rig], instance, model, here) for rig, instance in places),
        key=next((key for key in keys if key), None),
        fallback=model.fallback,
        sticky=model.sticky,
    )


def _places(model: ServedModel, rigs: Mapping[str, Rig]) -> list[tuple[str, str]]:
    return [place for named in model.serve if (place := split_served(named, rigs))]


def swapping(models: Mapping[str, ServedModel], rigs: Mapping[str, Rig]) -> dict[tuple[str, str], list[str]]:
    """Return the models that one server loads one after another, by rig and group."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, model in sorted(models.items()):
        for rig, instance in _places(model, rigs):
            if group := rigs[rig].instances[instance].group:
                found.setdefault((rig, group), []).append(name)
    return found


def _server(rig: Rig, name: str, model: ServedModel, here: str) -> GatewayServer:
    """Return a server with its address: the loopback on the gateway's own host, else the rig's address."""
    instance = rig.instances[name]
    traits = DIALECTS[rig.engines[instance.engine].kind].traits
    endpoint = Endpoint(listen=instance.listen, port=instance.port, models=(instance.model,), streams=instance.parallel)
    address = endpoint.local_address if rig.rig == here else rig.address
    return GatewayServer(
        name=f"{rig.rig}.{rig.server_of(name)}",
        address=address,
        port=instance.port,
        streams=model.streams or instance.parallel,
        health_path=endpoint.health_path,
        patient=traits.health_waits,
    )


def _unit(rig: str, port: int) -> TextFile:
    """Return the unit, which contains a hash of itself: a process with another hash is out of date."""
    text = render(
        "gateway/gateway.service.j2",
        rig=rig,
        folder=GATEWAY,
        run=GATEWAY_RUN,
        user=GATEWAY_USER,
        files=FILES,
        low_port=port < _PRIVILEGED,
    )
    return TextFile(path=str(UNITS / GATEWAY_UNIT), text=text.replace("@SPEC@", digest(text)))


def unit_spec(made: GatewayPlan) -> str:
    """Return the hash in the unit."""
    return made.unit.text.partition("LLAMAHERD_SPEC=")[2].split("\n", 1)[0]
