"""Gateway: one address for all models of the fleet, served by the distribution's HAProxy in a unit of ours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.engines import DIALECTS
from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.authority import certificate_of, root_in
from llamaherd.inventory.schema import LOCAL, Rig
from llamaherd.inventory.schema import Secret as DeclaredSecret
from llamaherd.inventory.schema import Task as ServedTask
from llamaherd.inventory.schema.fleet_file import Gateway, Monitoring, ServedModel, certified, served_task, split_served
from llamaherd.layout import (
    GATEWAY,
    GATEWAY_FIGURES_PORT,
    GATEWAY_RUN,
    GATEWAY_TALK,
    GATEWAY_UNIT,
    GATEWAY_USER,
    PAUSED,
    service_of,
)
from llamaherd.onhost.document import Secret
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import (
    Estimate,
    GatewayFigures,
    GatewayModel,
    GatewayPlan,
    GatewayServer,
    GatewayUser,
    Plan,
    TextFile,
    WakeRig,
)
from llamaherd.plan.instance import Endpoint, task_path
from llamaherd.render import render
from llamaherd.role.changes import (
    Action,
    Change,
    RunVerb,
    file_differences,
    file_differs,
    text_differs,
    unit_file,
    unit_spec,
    written_files,
)
from llamaherd.role.preflight import PreflightRow, Refusal, is_port_taken, port_refusal
from llamaherd.role.reach import networks
from llamaherd.role.report import (
    CHAT_SECONDS,
    PROMPT,
    Check,
    private_files_check,
    restart_reasons,
    service_check,
    service_probe,
    unit_problems,
)
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.textfile import UnreadableError, read_bytes
from roles.gateway.config import (
    CERTIFICATE,
    CONFIGURATION,
    SCRIPT,
    GatewayKeys,
    certificate,
    configuration,
    maps,
    reader,
    spec_of,
    waker,
)
from roles.gateway.onhost import ApplyInput, Found, How, InspectInput

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
        models=tuple(
            _in_turn([_plan_model(*each, rig, rigs) for each in sorted(declared.models.items())], declared, rigs)
        ),
        users=tuple(
            GatewayUser(
                name=name,
                key=user.key,
                streams=user.streams,
                models=tuple(sorted(user.models or declared.models)),
            )
            for name, user in sorted(declared.users.items())
        ),
        unit=_unit(rig, declared.port),
        talk=TextFile(path=str(GATEWAY_TALK), text=render("gateway/gateway-talk.py"), mode="0755"),
        figures=_figures(monitoring, rig, rigs) if monitoring and monitoring.watches(rig) else None,
        virtual_address=declared.address,
        wakes=tuple(
            WakeRig(rig=name, mac=each.wake.mac) for name, each in sorted(rigs.items()) if each.wake and name != rig
        ),
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
    every = "::" if ":" in watching.address else "0.0.0.0"
    return GatewayFigures(listen=every, port=GATEWAY_FIGURES_PORT, asker=watching.address)


def _plan_model(name: str, model: ServedModel, here: str, rigs: Mapping[str, Rig]) -> GatewayModel:
    places = _places(model, rigs)
    keys = [rigs[rig].instances[instance].api_key for rig, instance in places]
    return GatewayModel(
        name=name,
        aliases=tuple(sorted(model.aliases)),
        servers=tuple(_server(rigs[rig], instance, model, here) for rig, instance in places),
        key=next((key for key in keys if key), None),
        fallback=model.fallback,
        sticky=model.sticky,
        task=served_task(model, rigs),
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
        wakes=rig.rig if rig.wake and rig.rig != here else "",
    )


def _unit(rig: str, port: int) -> TextFile:
    text = render(
        "gateway/gateway.service.j2",
        rig=rig,
        folder=GATEWAY,
        run=GATEWAY_RUN,
        user=GATEWAY_USER,
        files=FILES,
        low_port=port < _PRIVILEGED,
    )
    return unit_file(GATEWAY_UNIT, text)


_MOST_PEM = 256 << 10
"""Bytes of a certificate with its chain, and of its key."""

_PROGRESS = {
    "restart": "starting the gateway",
    "reload": "reloading the gateway",
    "maps": "updating the users of the gateway",
}
_PRIVATE = (CONFIGURATION, SCRIPT, CERTIFICATE, "keys.map", "streams.map", "models.map", "lists.map")


@dataclass(frozen=True)
class GatewayState(Found, StatePart):
    """Its unit, what the process that runs has read, and the distribution's own unit."""


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect, also where the fleet has its gateway elsewhere by now."""
    return InspectInput(plan.gateway is not None) if plan.of_fleet else None


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield a port that is in use, and an address that the host lacks."""
    if plan.gateway is None:
        return
    port, listen = plan.gateway.port, ip_address(plan.gateway.listen)
    running = GatewayState.of(state).running
    if is_port_taken(port, plan, state) and not (running and running.port == port):
        yield port_refusal(port, "the gateway", "gateway")
    own = {str(each.ip) for each in networks(state.system.addresses)}
    if own and not (listen.is_loopback or listen.is_unspecified or str(listen) in own):
        yield Refusal(
            f"the gateway is to listen on {listen}, which is no address of this host",
            f"it has {', '.join(sorted(own))}: choose one of them, or bring the missing address up",
            "gateway",
        )


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the gateway's port."""
    if plan.gateway:
        running = GatewayState.of(state).running
        found = f"listens on port {running.port}" if running else "none runs"
        yield PreflightRow("gateway", found, f"port {plan.gateway.port}")


def read_keys(plan: GatewayPlan) -> GatewayKeys:
    """Return all keys. Raise UserError if a key cannot be read, or two users have the same."""
    owners: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for user in plan.users:
        hashes[user.name] = hashlib.sha256(_key(user.key, f"user `{user.name}`").encode()).hexdigest()
        owner = owners.setdefault(hashes[user.name], user.name)
        if owner != user.name:
            raise UserError(
                f"users `{user.name}` and `{owner}` have the same key",
                f"give each a key of their own: `herd users rotate {user.name}`",
            )
    servers = {model.name: _key(model.key, f"servers of `{model.name}`") for model in plan.models if model.key}
    return GatewayKeys(hashes, servers, _certificate(plan))


def _key(secret: DeclaredSecret, whose: str) -> str:
    try:
        return read_key(secret)
    except UnreadableKeyError as error:
        raise UserError(f"the key of {whose}: {error}", "put the key there, or take it out of fleet.yaml") from None


def _certificate(plan: GatewayPlan) -> str | None:
    """Return certificate and key in one text, as HAProxy reads them: of a CA of ours, or from files."""
    if plan.authority is not None:
        return certificate_of(plan.authority, plan.rig, plan.names)
    if plan.certificate is None or plan.private_key is None:
        return None
    return "".join(f"{_pem(file).strip()}\n" for file in (plan.certificate, plan.private_key))


def _pem(file: Path) -> str:
    try:
        return read_bytes(file, _MOST_PEM).decode("ascii")
    except UnreadableError as error:
        raise UserError(f"cannot read {file}: {error}", error.help) from None
    except UnicodeDecodeError:
        raise UserError(f"what is in {file} is no PEM", "name a file that begins with `-----BEGIN`") from None


def gateway_changes(plan: Plan, state: HostState) -> list[Change]:
    """Apply the planned gateway. Raise UserError where a key cannot be read."""
    return changes_with(plan.gateway, state, read_keys(plan.gateway)) if plan.gateway else []


def changes_with(plan: GatewayPlan, state: HostState, keys: GatewayKeys) -> list[Change]:
    """Return the changes of the gateway with these keys."""
    config, user_maps = configuration(plan, keys), list(maps(plan, keys))
    reloaded = [config, reader(), *waker(plan), *certificate(keys)]
    private = [*reloaded, *user_maps]
    spec = spec_of(config.text)
    gateway = GatewayState.of(state)
    # It ends its streams.
    restart = restart_reasons(gateway.unit, unit_spec(plan.unit))
    reload = [] if restart else _reload(gateway, spec, reloaded, state)
    update = [] if restart or reload else _map_reasons(gateway, user_maps, state)
    changed = [file for file in (*private, plan.unit, plan.talk) if file_differs(file, state)]
    unsettled = ["the distribution's own haproxy.service runs too, and serves no client"] if gateway.idle_own else []
    unsettled += unit_problems(gateway.unit)
    reasons = (*dict.fromkeys((*restart, *reload, *update, *file_differences(changed, state), *unsettled)),)
    if not reasons:
        return []
    how: How = "restart" if restart else "reload" if reload else "maps"
    given = ApplyInput(
        files=written_files(private),
        outside=written_files([plan.unit, plan.talk]),
        spec=spec,
        how=how,
        idle_own=gateway.idle_own,
    )
    action: Action = "create" if gateway.unit is None else "restart" if restart else "update"
    name = GATEWAY_UNIT.removesuffix(".service")
    return [Change(action, "gateway", name, reasons, RunVerb("gateway.apply", given, _PROGRESS[how]))]


def gateway_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Take it away where the fleet has its gateway elsewhere, or none."""
    if plan.gateway or GatewayState.of(state).unit is None:
        return []
    why = ("this rig is not declared as a gateway",)
    how = RunVerb("gateway.remove", NoInput(), "ending the gateway")
    return [Change("remove", "gateway", GATEWAY_UNIT, why, how)]


def _reload(gateway: GatewayState, spec: str, files: Sequence[TextFile], state: HostState) -> list[str]:
    """Return why HAProxy must reload its configuration, which ends no stream."""
    why = [f"{file.path} has another text" for file in files if text_differs(file, state)]
    if gateway.running is None:
        return [*why, "it does not report what it has read"]
    running = f"{gateway.running.spec}/{gateway.running.port}"
    return why if why or running == spec else [f"it has read {running}, not {spec}"]


def _map_reasons(gateway: GatewayState, user_maps: Sequence[TextFile], state: HostState) -> list[str]:
    """Return why HAProxy must update its maps of users."""
    why = [f"{file.path} has another text" for file in user_maps if text_differs(file, state)]
    if gateway.running and not gateway.running.maps_are_read:
        why.append("it has read other users than those of its files")
    return why


# $1 is the URL; the root certificate comes on stdin.
_TRUSTED = """\
root=$(mktemp) && cat >"$root"
why=$(curl -q -sS --noproxy '*' --max-time 5 --cacert "$root" -o /dev/null "$1" 2>&1)
printf '%s %s\\n' "$?" "$why"
rm -f "$root"
"""


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield requests without a key, with a wrong key, and as a user, whose key travels on stdin."""
    if plan.gateway is None:
        return
    made = plan.gateway
    endpoint = Endpoint(listen=made.listen, port=made.port, models=(), streams=1)
    url = endpoint.url().replace("http:", "https:") if made.secure else endpoint.url()
    keys = {model.name: key for model in made.models if (key := _key_for(made, model.name))}
    yield service_probe("gateway unit", GATEWAY_UNIT)
    yield Probe("gateway files", "", ("find", str(GATEWAY), "-maxdepth", "1", "-printf", r"%m %u %p\n"))
    if root := _root(made):
        trusted = ("sh", "-c", _TRUSTED, "sh", f"{url}/healthz")
        yield Probe("gateway certificate", "", trusted, stdin=Secret(root))
    yield _request("gateway keyless", "", f"{url}/v1/models", "")
    yield _request("gateway wrong", "", f"{url}/v1/models", "llamaherd-wrong-key")
    if keys:
        yield _request("gateway elsewhere", "", f"{url}/slots", next(iter(keys.values())))
    # Servers of this rig that are paused: their models have no other server, it may be.
    yield Probe("gateway paused", "", ("ls", "-1", str(PAUSED)))
    for model in made.models:
        if key := keys.get(model.name):
            path = task_path(endpoint, model.task)
            yield _request("gateway model", model.name, f"{url}{path}", key, _body(model), CHAT_SECONDS)


def _request(what: str, of: str, url: str, key: str, body: str = "", seconds: int = 5) -> Probe:
    """Return one request, which prints the headers of its response. Its own headers come on stdin."""
    limits = ("curl", "-q", "-s", "-k", "--noproxy", "*", "--max-time", str(seconds))
    posted = ("-H", "Content-Type: application/json", "-d", body) if body else ()
    header = Secret(f"Authorization: Bearer {key}\n" if key else "")
    argv = (*limits, "-H", "@-", "-o", "/dev/null", "-D", "-", *posted, url)
    return Probe(what, of, argv, stdin=header, seconds=seconds + 5, errors=True)


def _root(made: GatewayPlan) -> str | None:
    """Return the root certificate for clients; None if it is not ours, or not on this machine."""
    if made.authority is not None:
        with suppress(UserError):
            return root_in(made.authority).pem
    return None


def _key_for(made: GatewayPlan, model: str) -> str | None:
    """Return the key of a user of a model; None without a user, or if the key is not on this machine."""
    user = made.may_use(model)
    if user is not None:
        with suppress(UnreadableKeyError):
            return read_key(user.key)
    return None


def _body(model: GatewayModel) -> str:
    """Return the body of a request that a model's servers are for."""
    bodies: dict[ServedTask, dict[str, object]] = {
        "chat": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1},
        "embeddings": {"input": PROMPT},
        "rerank": {"query": PROMPT, "documents": [PROMPT]},
    }
    return json.dumps({**bodies[model.task], "model": model.name})


def judge(judging: Judging) -> Verified:
    """Return the checks of the gateway."""
    made = judging.plan.gateway
    return Verified(checks=tuple(gateway_checks(made, judging.outputs, judging.rig.rig))) if made else Verified()


def gateway_checks(made: GatewayPlan, outputs: ProbeOutputs, rig: str) -> Iterator[Check]:
    """Yield checks of the unit, its files' access, refused requests, and each model's response."""
    stopped = frozenset(outputs.get(("gateway paused", ""), "").split())
    yield service_check("gateway", outputs.get(("gateway unit", ""), ""), GATEWAY_UNIT)
    owners = outputs.get(("gateway files", ""), "")
    yield private_files_check("gateway files", owners, (f"600 {GATEWAY_USER}", "700 "), "keys and hashes")
    yield from _certificate_check(outputs.get(("gateway certificate", "")))
    for what, section, status in (
        ("gateway without a key", "keyless", "401"),
        ("gateway with a wrong key", "wrong", "401"),
        ("gateway, other paths", "elsewhere", "404"),
    ):
        if section == "elsewhere" and ("gateway elsewhere", "") not in outputs:
            continue  # without a user's key, the response is another
        found = _status(outputs.get((f"gateway {section}", ""), ""))
        expected = "" if found == status else f", not {status}"
        yield Check(what, found == status, f"{_http(found)}{expected}")
    for model in made.models:
        own = {each.name for each in model.servers if service_of(each.name.removeprefix(f"{rig}.")) in stopped}
        paused = bool(own) and own == {each.name for each in model.servers}
        yield _chat_check(model, outputs.get(("gateway model", model.name)), paused=paused)


def _certificate_check(output: str | None) -> Iterator[Check]:
    """Yield whether a client that trusts the CA can connect, by curl's exit status and message."""
    if output is None:
        return
    status, _, why = output.partition(" ")
    detail = "is of the CA that clients trust, and holds today"
    yield Check("gateway certificate", status == "0", detail if status == "0" else why or "no response")


def _http(status: str) -> str:
    return f"HTTP {status}" if status else "no response"


def _chat_check(model: GatewayModel, output: str | None, *, paused: bool) -> Check:
    """Return whether a model responds through the gateway, and which server did. `paused`: all its servers are."""
    name = f"gateway model {model.name}"
    if output is None:
        return Check(name, True, "not queried: no user's key for it is on this machine", doubt=True)
    pairs = (line.partition(":") for line in output.split("\n")[1:])
    status, headers = _status(output), {name.strip().lower(): value.strip() for name, _, value in pairs if value}
    server, fallback = headers.get("x-herd-instance"), headers.get("x-herd-fallback")
    if paused and (fallback or status != "200"):
        instead = f"{fallback} responds in its place" if fallback else "requests fail until then"
        return Check(name, True, f"all its servers are paused; {instead}", doubt=True)
    if fallback:
        return Check(name, False, f"none of its servers responds; {fallback} does in its place")
    if status == "200" and server in {each.name for each in model.servers}:
        return Check(name, True, f"responds, by {server}")
    if status in ("400", "501") and server:
        return Check(name, True, f"{server} returns HTTP {status} to a chat: it may serve other requests")
    if status == "429":
        return Check(name, True, "all its servers are at work", doubt=True)
    return Check(name, False, f"{_http(status)} to a chat: no server responds, or they refuse the gateway")


def _status(output: str) -> str:
    """Return the status of a response with these headers."""
    words = output.partition("\n")[0].split()
    return words[1] if len(words) > 1 and words[0].startswith("HTTP/") else ""


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Yield the gateway's address, the servers behind each name, and the users of each name."""
    if plan.gateway is None:
        return
    made = plan.gateway
    scheme = "https" if made.secure else "http"
    yield f"  gateway    {scheme} on {made.listen}:{made.port}, {made.length} wait for each model, up to {made.wait} s"
    if made.authority:
        yield f"             certificate of the CA in {made.authority}, for {', '.join(made.names)}"
    yield from (f"             {_model(model)}" for model in made.models)
    for user in made.users:
        yield f"             user {user.name}: {user.streams} at once, {', '.join(user.models)}"


def _model(model: GatewayModel) -> str:
    servers = ", ".join(f"{each.name} ({each.address}:{each.port}, {each.streams} at once)" for each in model.servers)
    also = f", also {', '.join(model.aliases)}" if model.aliases else ""
    falls = f", else {model.fallback}" if model.fallback else ""
    return f"{model.name}{also}: {servers}{falls}"


def _private_files(made: GatewayPlan) -> Iterator[str]:
    yield from (str(GATEWAY / name) for name in _PRIVATE)
    yield from (file.path for file in waker(made))


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the gateway's task, before servers: it reports those that are missing. If it fails, servers go on."""
    if plan.gateway:
        yield Task("one endpoint for clients", lambda state, _: gateway_changes(plan, state), alone=True)


ROLE = Role(
    name="gateway",
    summary="People find all models at one address, each with a key of their own.",
    plan=plan,
    brings=lambda plan: (plan.gateway.unit, plan.gateway.talk) if plan.gateway else (),
    files=lambda plan: _private_files(plan.gateway) if plan.gateway else (),
    inspection=Inspection("gateway.inspect", inspection_input, GatewayState),
    refusals=refusals,
    facts=facts,
    leftovers=gateway_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
