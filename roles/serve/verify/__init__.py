"""Whether every server is what was declared: its unit or container, its process, its files, and what it answers."""

from __future__ import annotations

import json

from llamaherd.host.answers import Answers, chat, pairs, reply
from llamaherd.host.limits import LIMITS_FORMAT
from llamaherd.inventory.schema import Rig
from llamaherd.plan import BuildPlan, InstancePlan, Plan
from llamaherd.render import render
from llamaherd.role.reach import Reach
from llamaherd.role.report import PROMPT, Check, InstanceReport, chat_seconds
from llamaherd.role.role import Judging, Verified
from roles.serve.onhost.drop_ins import DECIDING
from roles.serve.verify.answering import drafts, fast, health, listening, locked, serves, streams
from roles.serve.verify.container import WALLS_FORMAT
from roles.serve.verify.exposure import exposed
from roles.serve.verify.gpus import on_gpus
from roles.serve.verify.members import member_checks
from roles.serve.verify.process import in_place, installed, process, serving


def question(plan: Plan) -> str:
    """Ask each server all that it answers, and the host what runs; no key is in it."""
    asked = [each for instance in plan.instances for each in instance.members or (instance,)]
    bodies = {
        each.name: json.dumps(
            {
                "model": each.model,
                "messages": [{"role": "user", "content": PROMPT}],
                "stream": True,
                "temperature": 0,
                "max_tokens": 64,
            }
        )
        for each in asked
    }
    return render(
        "serve/verify.sh.j2",
        plan=plan,
        chat=bodies,
        chat_seconds=chat_seconds,
        limits=LIMITS_FORMAT,
        deciding=DECIDING,
        walls=WALLS_FORMAT,
    )


def judge(judging: Judging) -> Verified:
    """A report of each server, and what is there of it."""
    rig, plan, answers, reached = judging.rig, judging.plan, judging.answers, judging.reached
    builds = {build.id: build for build in plan.builds}
    return Verified(
        checks=tuple(exposed(plan, answers)) if plan.instances else (),
        installed=tuple(installed(plan, answers)),
        instances=tuple(
            _instance(
                rig,
                planned,
                builds.get(planned.build or ""),
                plan,
                answers,
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
    reach: Reach | None,
) -> InstanceReport:
    name = planned.name
    first = planned.members[0].name if planned.members else name
    said = chat(reply(answers.get(("chat", first), "")).body)
    checks = [
        serving(planned, pairs(answers.get(("serving", name), "")), answers.get(("shared", name), "")),
        process(planned, answers),
        in_place(planned, build, plan, answers),
        listening(planned, answers.get(("listening", ""), "")),
        health(planned, reply(answers.get(("health", name), ""))),
        *([Check("reach", reach.ok, reach.detail, reach.doubt)] if reach else []),
        *([Check("on GPUs", *on_gpus(planned, answers))] if planned.server.cards else []),
        *([locked(reply(answers.get(("keyless", name), "")))] if planned.key_file else []),
        *_answering(rig, planned, answers),
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


def _answering(rig: Rig, planned: InstancePlan, answers: Answers) -> list[Check]:
    """What it serves, and how a chat with it went; with each of a group's models."""
    models = reply(answers.get(("models", planned.name), ""))
    if planned.members:
        return [check for member in planned.members for check in member_checks(rig, planned, member, models, answers)]
    declared = rig.instances[planned.name]
    streamed = reply(answers.get(("chat", planned.name), ""))
    said = chat(streamed.body)
    return [
        *serves(declared, planned, models, reply(answers.get(("props", planned.name), ""))),
        streams(streamed, said),
        *([drafts(streamed, said)] if planned.drafts and planned.endpoint.counts_drafts else []),
        *([fast(planned.expect.decode, said)] if planned.expect and planned.expect.decode else []),
    ]
