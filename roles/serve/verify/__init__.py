"""Verify the servers of a host: how each responds to clients, and which ports other machines can reach."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from llamaherd.engines.flags.task import Task
from llamaherd.host.responses import Chat, ProbeOutputs, Reply, json_object, json_objects, parse_chat, parse_reply
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.layout import EXPORTER_UNIT
from llamaherd.plan import BuildPlan, InstancePlan, MemberPlan, Plan
from llamaherd.plan.instance import SHARE_OF_EXPECTED, planned_task
from llamaherd.role.reach import Reach
from llamaherd.role.report import PROMPT, Check, InstanceReport, chat_seconds
from llamaherd.role.role import Judging, Verified
from llamaherd.text.numbers import show_hours, whole_number
from roles.serve.onhost.model import (
    ChatRequest,
    Listening,
    PlannedImage,
    PlannedServer,
    ProbeResult,
    Requests,
    Responses,
    ServerFound,
    VerifiedServers,
    VerifyServersInput,
)
from roles.serve.onhost.session import is_visible, text_before_marker
from roles.serve.state import LIMITS
from roles.serve.transaction import probe_question
from roles.serve.verify.process import check_files, check_process, check_running, installed_files, judge_gpus

_SOCKET = re.compile(r"([0-9A-Fa-f]{8}|[0-9A-Fa-f]{32}):([0-9A-Fa-f]{1,4})")
_WAY_IN = frozenset({"sshd", "sshd-session"})
_SSH_UNITS = ("ssh.socket", "ssh.service", "sshd.service", "sshd.socket")

_OURS = "llamaherd-share.service"
"""The unit that shares models with peers."""

_PROXY = "docker-proxy"
"""The program that listens for a container: Docker itself reports for which."""

_PUBLISHED = re.compile(r"(?P<address>\S+):(?P<port>[0-9-]+)->")
_LOOPBACK = ("127.", "[::1]")
_SHOWN = 40
"""Characters of a response that are shown in a message."""


def check_listening(planned: InstancePlan, text: str) -> Check:
    """Check that the server listens at the declared address, and at no other."""
    found = {address for address, port in filter(None, map(_socket, text.split())) if port == planned.endpoint.port}
    right = found == {planned.endpoint.listen}
    where = " and ".join(sorted(found)) or "nowhere"
    detail = f"port {planned.endpoint.port} on {where}" + ("" if right else f", declared is {planned.endpoint.listen}")
    return Check("listens", right, detail)


def _socket(text: str) -> tuple[str, int] | None:
    """Return address and port of a line of /proc/net/tcp, or None."""
    # 32-bit words in the byte order of x86 and ARM.
    found = _SOCKET.fullmatch(text)
    if not found:
        return None
    words = [bytes.fromhex(found[1][at : at + 8])[::-1] for at in range(0, len(found[1]), 8)]
    return str(ipaddress.ip_address(b"".join(words))), int(found[2], 16)


def check_health(planned: InstancePlan, health: Reply) -> Check:
    if planned.endpoint.health_status is None:
        return Check("health", health.status == 200, "responds" if health.status == 200 else health.problem)
    found = health.problem or f"status is `{health.json.get('status')}`"
    return Check("health", not health.problem and health.json.get("status") == planned.endpoint.health_status, found)


def check_key(keyless: Reply) -> Check:
    """Check that a declared key is required."""
    if keyless.status == 200:
        return Check("key", False, "it responds without the declared API key")
    return Check("key", keyless.status == 401, "required" if keyless.status == 401 else keyless.problem)


def check_models(declared: Instance, planned: InstancePlan, models: Reply, props: Reply) -> tuple[Check, Check]:
    """Check the model and its context."""
    # An engine that reports nothing else has both in its list of models.
    if planned.endpoint.props_path:
        return _model(planned, models, props), check_context(declared, props)
    if models.problem:
        return Check("model", False, models.problem), Check("context", False, models.problem)
    served = {str(model.get("id")): model.get("max_model_len") for model in json_objects(models.json.get("data"))}
    names, found = ", ".join(served) or "none", served.get(planned.model)
    right = list(served) == [planned.model]
    return (
        Check("model", right, names if right else f"{names}; declared is {planned.model}"),
        Check("context", found == declared.context, f"{found} tokens, declared are {declared.context}"),
    )


def _model(planned: InstancePlan, models: Reply, props: Reply) -> Check:
    """Check that the declared model responds: by its name for clients, and by the loaded file."""
    if problem := models.problem or props.problem:
        return Check("model", False, problem)
    names = [str(model.get("id")) for model in json_objects(models.json.get("data"))]
    path = props.json.get("model_path")
    right = names == [planned.model] and path == planned.model_path
    found = f"{', '.join(names) or 'none'} from {path}"
    return Check("model", right, found if right else f"{found}; declared is {planned.model} from {planned.model_path}")


def check_context(declared: Instance, props: Reply) -> Check:
    """Check the context."""
    # Slots share the declared context unless they have one cache together; engines round up to 256 cells.
    if props.problem:
        return Check("context", False, props.problem)
    found, slots = (
        json_object(props.json.get("default_generation_settings")).get("n_ctx"),
        props.json.get("total_slots"),
    )
    unified = {"--kv-unified", "-kvu"} & set(declared.extra_args)
    share = declared.context if unified else declared.context // declared.parallel
    right = isinstance(found, int) and share <= found < share + 256 and slots == declared.parallel
    detail = f"{slots} slot(s) of {found} tokens"
    return Check("context", right, detail if right else f"{detail}, declared is {declared.parallel} of {share}")


_TEMPLATE_FIX = "set the `--chat-template` of its model in `extra_args`"


def check_stream(streamed: Reply, output: Chat, probes: Sequence[ProbeResult]) -> Check:
    """Check a streamed response, which must have text that a person can read."""
    if streamed.problem or not output.answer:
        return Check("chat", False, streamed.problem or "the response has no text")
    before, shown = text_before_marker(output.answer), json.dumps(output.answer[:_SHOWN], ensure_ascii=False)
    if before is not None and not is_visible(before):
        return Check("chat", False, f"the response {shown} is not text: {_TEMPLATE_FIX}")
    if not is_visible(output.answer):
        # A small model may repeat itself at temperature 0.
        another = any((each.name, each.outcome) == ("prompt", "passed") for each in probes)
        later = ", and a later one is" if another else ""
        return Check("chat", another, f"the response {shown} is not text{later}", doubt=another)
    if output.chunks < 2:
        return Check("chat", False, f"the response is not streamed: {output.chunks} pieces with text")
    speed = f", {output.tokens_per_second:.1f} tokens/s" if output.tokens_per_second else ""
    # As declared, so that nothing failed; but hardly as meant.
    marked = before is not None
    note = f"; the text contains markers of a chat template: {_TEMPLATE_FIX}" if marked else ""
    return Check("chat", True, f"streams in {output.chunks} pieces{speed}{note}", doubt=marked)


def check_drafts(streamed: Reply, output: Chat) -> Check:
    if streamed.problem:
        return Check("drafts", False, streamed.problem)
    if not output.draft_n:
        return Check("drafts", False, "no token was drafted, though `draft` is declared")
    return Check("drafts", True, f"{output.draft_accepted} of {output.draft_n} drafted tokens accepted")


def check_speed(expected: float, output: Chat) -> Check:
    """Check that the server is as fast as its owner expects."""
    if not output.tokens_per_second:
        return Check("speed", False, f"it reports no speed; expected are {expected:g} tokens/s")
    detail = f"{output.tokens_per_second:.1f} tokens/s, expected are {expected:g}"
    return Check("speed", output.tokens_per_second >= expected * SHARE_OF_EXPECTED, detail)


def member_checks(
    rig: Rig, planned: InstancePlan, member: MemberPlan, models: Reply, responses: Responses
) -> Iterator[Check]:
    """Yield the checks of one member of a group, each with its name."""
    props = parse_reply(responses.props.get(member.name, ""))
    found = [_member_model(planned, member, models, props), check_context(rig.instances[member.name], props)]
    found += task_checks(planned, member, responses)
    yield from (replace(each, name=f"{member.name}: {each.name}") for each in found)


def task_checks(planned: InstancePlan, each: InstancePlan | MemberPlan, responses: Responses) -> Iterator[Check]:
    """Yield the checks of what a server, or a model of a group, responds to clients."""
    probes = responses.probes.get(each.name, ())
    if _task(planned, each) == "chat":
        streamed = parse_reply(responses.chats.get(each.name, ""))
        output = parse_chat(streamed.body)
        yield check_stream(streamed, output, probes)
        if each.drafts and planned.endpoint.counts_drafts:
            yield check_drafts(streamed, output)
        if each.expect and each.expect.decode:
            yield check_speed(each.expect.decode, output)
    elif not probes:
        yield Check(_task(planned, each), False, parse_reply(responses.health).problem or "it was not tried")
    for probe in probes:
        yield Check(probe.name, probe.outcome != "failed", probe.detail, note=probe.outcome == "note")


def _task(planned: InstancePlan, each: InstancePlan | MemberPlan) -> Task:
    return planned_task(planned, each if isinstance(each, MemberPlan) else None)


def _member_model(planned: InstancePlan, member: MemberPlan, models: Reply, props: Reply) -> Check:
    """Check that the server lists its models and no others, and has loaded this one from its file."""
    if problem := models.problem or props.problem:
        return Check("model", False, problem)
    names = sorted(str(model.get("id")) for model in json_objects(models.json.get("data")))
    path = props.json.get("model_path")
    listed = names == sorted(planned.endpoint.models)
    detail = f"{member.model} from {path}" if listed else f"it lists {', '.join(names) or 'none'}"
    right = listed and path == member.model_path
    return Check("model", right, detail if right else f"{detail}; declared is {member.model} from {member.model_path}")


def exposure_checks(plan: Plan, found: VerifiedServers) -> Iterator[Check]:
    """Yield ports that other machines reach."""
    # Nothing fails by it, for a machine may serve more than models.
    if found.listening is None:
        return
    open_ = _declared(plan)
    exports = plan.monitoring is not None and plan.monitoring.exporter is not None
    fine: list[str] = []
    strange: list[str] = []
    for each in found.listening:
        if each.port in open_:
            fine.append(f"{open_[each.port]} ({each.port})")
        elif each.program in _WAY_IN or each.unit in _SSH_UNITS:
            fine.append(f"ssh ({each.port})")
        elif each.unit == _OURS:
            fine.append(f"models for peers ({each.port})")
        elif exports and each.unit == EXPORTER_UNIT:
            fine.append(f"figures of this host ({each.port})")
        elif each.program != _PROXY:
            strange.append(f"{_named(each)} listens at {each.port} for others")
    strange += _published(found.published, set(open_))
    detail = "; ".join(dict.fromkeys(strange)) + ": not declared" if strange else ", ".join(dict.fromkeys(fine))
    silent = "Docker did not respond, so the ports that it publishes are unknown" if "Docker" in found.unknown else ""
    shown = "; ".join(filter(None, [detail or "nothing listens for others", silent]))
    yield Check("exposed", True, shown, doubt=bool(strange or silent))


def _declared(plan: Plan) -> dict[int, str]:
    """Return ports that are open to others, by their service."""
    # Metrics are for the rig that watches alone.
    found = {each.endpoint.port: each.service for each in plan.instances if each.endpoint.for_others}
    if plan.gateway and plan.gateway.for_others:
        found[plan.gateway.port] = "the gateway"
    if plan.gateway and plan.gateway.figures and plan.gateway.figures.asker:
        found[plan.gateway.figures.port] = "figures of the gateway"
    return found


def _named(each: Listening) -> str:
    if not each.program:
        return "a program that does not show"
    return f"{each.program} ({each.unit})" if each.unit.endswith(".service") else f"{each.program} (process {each.pid})"


def _published(lines: Iterable[str], declared: set[int]) -> Iterator[str]:
    """Yield ports that Docker publishes undeclared."""
    # They bypass the firewall of ufw and firewalld.
    for line in lines:
        name, _, ports = line.partition(" ")
        found = (match for match in _PUBLISHED.finditer(ports) if not match["address"].startswith(_LOOPBACK))
        open_ = dict.fromkeys(match["port"] for match in found)
        if strange := [port for port in open_ if whole_number(port) not in declared]:
            yield f"container {name} publishes {', '.join(strange)}, past most firewalls"


def verification_input(plan: Plan) -> VerifyServersInput | None:
    """Return what to verify of servers, without keys; None if there are no servers."""
    if not plan.instances and not plan.images:
        return None
    return VerifyServersInput(
        servers=tuple(map(_server, plan.instances)),
        images=tuple(PlannedImage(each.tag, each.record) for each in plan.images),
        limits=LIMITS,
    )


def _server(planned: InstancePlan) -> PlannedServer:
    server, unit = planned.server, planned.backend == "systemd"
    bin_folder = f"{planned.build_folder}/bin" if planned.build_folder else ""
    owned = (planned.file.path, bin_folder, planned.key_file or "", *server.folders)
    return PlannedServer(
        name=planned.name,
        service=planned.service,
        unit=unit,
        user=server.user,
        file=planned.file.path,
        port=planned.endpoint.port,
        reads=planned.reads,
        program=server.program or "" if planned.build and unit else "",
        owned=tuple(filter(None, owned)),
        variables=planned.variables,
        strange_variables=planned.strange_variables,
        has_gpus=bool(server.cards),
        swaps=bool(planned.members),
        requests=_requests(planned),
    )


def _requests(planned: InstancePlan) -> Requests:
    endpoint = planned.endpoint
    props = endpoint.props_path
    return Requests(
        health_url=endpoint.health,
        keyless_url=endpoint.url(endpoint.locked_path) if planned.key_file else "",
        models_url=endpoint.url(endpoint.models_path),
        props_url=endpoint.url(props) if props and not planned.members else "",
        chats=tuple(_chat(planned, each) for each in planned.members or (planned,)),
        chat_seconds=chat_seconds(planned),
        key_file=planned.key_file or "",
    )


def _chat(planned: InstancePlan, each: InstancePlan | MemberPlan) -> ChatRequest:
    """Return a chat with one of a server's models. A server that swaps loads this model for the chat."""
    messages = [{"role": "user", "content": PROMPT}]
    body = {"model": each.model, "messages": messages, "stream": True, "temperature": 0, "max_tokens": 64}
    endpoint = planned.endpoint
    props = endpoint.of_model(endpoint.props_path or "", each.model) if planned.members else ""
    return ChatRequest(
        name=each.name,
        url=endpoint.url(endpoint.chat_path),
        body=json.dumps(body) if _task(planned, each) == "chat" else "",
        props_url=endpoint.url(props) if props else "",
        question=probe_question(planned, each if isinstance(each, MemberPlan) else None),
    )


def healthy_names(found: VerifiedServers) -> Iterator[str]:
    """Yield the servers that respond on their own host."""
    yield from (name for name, each in found.servers.items() if parse_reply(each.responses.health).status == 200)


def judge_servers(judging: Judging) -> Verified:
    """Return a report of each server, and its files."""
    rig, plan, outputs, reached = judging.rig, judging.plan, judging.outputs, judging.reached
    found = judging.found(VerifiedServers) or VerifiedServers()
    builds = {build.id: build for build in plan.builds}
    return Verified(
        checks=tuple(exposure_checks(plan, found)) if plan.instances else (),
        installed=tuple(installed_files(plan, found)),
        instances=tuple(
            _instance(
                rig,
                planned,
                builds.get(planned.build or ""),
                plan,
                outputs,
                found,
                reached.get(planned.name),
            )
            for planned in plan.instances
        ),
    )


def _instance(
    rig: Rig,
    planned: InstancePlan,
    build: BuildPlan | None,
    plan: Plan,
    outputs: ProbeOutputs,
    found: VerifiedServers,
    reach: Reach | None,
) -> InstanceReport:
    name, server = planned.name, found.servers.get(planned.name, ServerFound())
    if server.pause_left is not None and server.process is None:
        return _paused(rig, planned, server, server.pause_left)
    responses = server.responses
    first = planned.members[0].name if planned.members else name
    output = parse_chat(parse_reply(responses.chats.get(first, "")).body)
    checks = [
        check_running(planned, server, found),
        check_process(planned, server, found, outputs),
        check_files(planned, build, plan, server, outputs),
        check_listening(planned, outputs.get(("listening", ""), "")),
        check_health(planned, parse_reply(responses.health)),
        *([Check("reach", reach.ok, reach.detail, reach.doubt)] if reach else []),
        *([Check("on GPUs", *judge_gpus(planned, server.on_gpus, found.gpus))] if planned.server.cards else []),
        *([check_key(parse_reply(responses.keyless))] if planned.key_file else []),
        *_answering(rig, planned, responses),
    ]
    return InstanceReport(
        name=name,
        backend=planned.backend,
        model=" or ".join(planned.endpoint.models),
        engine=planned.engine,
        build=planned.build or planned.server.image,
        port=planned.endpoint.port,
        answer=output.answer,
        tokens_per_second=output.tokens_per_second,
        draft_n=output.draft_n,
        draft_accepted=output.draft_accepted,
        checks=tuple(checks),
        responds=all(check.ok for check in checks if check.name.rpartition(": ")[2] in _RESPONSES),
    )


_RESPONSES = frozenset({"health", "reach", "chat", "prompt", "embeddings", "rerank"})
"""The checks of what clients get for sure. A server that fails another one responds, and not as declared."""


def _paused(rig: Rig, planned: InstancePlan, server: ServerFound, left: float) -> InstanceReport:
    """Return the report of a server that is paused: no other program may have its port when the pause ends."""
    detail = f"for {show_hours(left)} more; `herd resume {rig.rig}/{planned.name}` starts it"
    if server.holder:
        detail = f"it cannot start after its pause: port {planned.endpoint.port} is in use by {server.holder}"
    return InstanceReport(
        name=planned.name,
        backend=planned.backend,
        model=" or ".join(planned.endpoint.models),
        engine=planned.engine,
        build=planned.build or planned.server.image,
        port=planned.endpoint.port,
        checks=(Check("paused", not server.holder, detail),),
        paused=True,
    )


def _answering(rig: Rig, planned: InstancePlan, responses: Responses) -> list[Check]:
    """Check the models that a server lists, and a chat with it; with each of a group's models."""
    models = parse_reply(responses.models)
    if planned.members:
        return [check for member in planned.members for check in member_checks(rig, planned, member, models, responses)]
    props = parse_reply(responses.props.get(planned.name, ""))
    asleep = props.json.get("is_sleeping") is True
    return [
        *([Check("idle", True, "its model was unloaded, and was loaded for this verification")] if asleep else []),
        *check_models(rig.instances[planned.name], planned, models, props),
        *task_checks(planned, planned, responses),
    ]
