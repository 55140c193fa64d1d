"""Check every server against the plan: its unit or container, process, files and responses."""

from __future__ import annotations

import json
from collections.abc import Iterator

from llamaherd.host.answers import Answers, chat, reply
from llamaherd.host.limits import LIMITS
from llamaherd.inventory.schema import Rig
from llamaherd.plan import BuildPlan, InstancePlan, MemberPlan, Plan
from llamaherd.role.reach import Reach
from llamaherd.role.report import PROMPT, Check, InstanceReport, chat_seconds
from llamaherd.role.role import Judging, Verified
from roles.serve.onhost.verified import (
    ChatRequest,
    Found,
    PlannedImage,
    PlannedServer,
    Requests,
    Responses,
    ServerFound,
    VerifyServersInput,
)
from roles.serve.verify.answering import drafts, fast, health, listening, locked, serves, streams
from roles.serve.verify.exposure import exposed
from roles.serve.verify.gpus import on_gpus
from roles.serve.verify.members import member_checks
from roles.serve.verify.process import in_place, installed, process, serving


def question(plan: Plan) -> VerifyServersInput | None:
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
    url = endpoint.url(endpoint.chat_path)
    return ChatRequest(each.name, url, json.dumps(body), endpoint.url(props) if props else "")


def healthy(found: Found) -> Iterator[str]:
    """Yield the servers that respond on their own host."""
    yield from (name for name, each in found.servers.items() if reply(each.responses.health).status == 200)


def judge(judging: Judging) -> Verified:
    """A report of each server, and what is there of it."""
    rig, plan, answers, reached = judging.rig, judging.plan, judging.answers, judging.reached
    found = judging.found(Found) or Found()
    builds = {build.id: build for build in plan.builds}
    return Verified(
        checks=tuple(exposed(plan, found)) if plan.instances else (),
        installed=tuple(installed(plan, found)),
        instances=tuple(
            _instance(
                rig,
                planned,
                builds.get(planned.build or ""),
                plan,
                answers,
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
    answers: Answers,
    found: Found,
    reach: Reach | None,
) -> InstanceReport:
    name, server = planned.name, found.servers.get(planned.name, ServerFound())
    responses = server.responses
    first = planned.members[0].name if planned.members else name
    said = chat(reply(responses.chats.get(first, "")).body)
    checks = [
        serving(planned, server, found),
        process(planned, server, found, answers),
        in_place(planned, build, plan, server, answers),
        listening(planned, answers.get(("listening", ""), "")),
        health(planned, reply(responses.health)),
        *([Check("reach", reach.ok, reach.detail, reach.doubt)] if reach else []),
        *([Check("on GPUs", *on_gpus(planned, server.on_gpus, found.gpus))] if planned.server.cards else []),
        *([locked(reply(responses.keyless))] if planned.key_file else []),
        *_answering(rig, planned, responses),
    ]
    return InstanceReport(
        name=name,
        backend=planned.backend,
        model=" or ".join(planned.endpoint.models),
        engine=planned.engine,
        build=planned.build or planned.server.image,
        port=planned.endpoint.port,
        answer=said.answer,
        tokens_per_second=said.tokens_per_second,
        draft_n=said.draft_n,
        draft_accepted=said.draft_accepted,
        checks=tuple(checks),
    )


def _answering(rig: Rig, planned: InstancePlan, responses: Responses) -> list[Check]:
    """What it serves, and how a chat with it went; with each of a group's models."""
    models = reply(responses.models)
    if planned.members:
        return [check for member in planned.members for check in member_checks(rig, planned, member, models, responses)]
    declared = rig.instances[planned.name]
    streamed = reply(responses.chats.get(planned.name, ""))
    said = chat(streamed.body)
    return [
        *serves(declared, planned, models, reply(responses.props.get(planned.name, ""))),
        streams(streamed, said),
        *([drafts(streamed, said)] if planned.drafts and planned.endpoint.counts_drafts else []),
        *([fast(planned.expect.decode, said)] if planned.expect and planned.expect.decode else []),
    ]
