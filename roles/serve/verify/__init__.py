"""Asks the live host whether it is what was declared, by other means than those that made it so.

One script in one connection asks for everything; what it printed is then judged here, by pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from llamaherd.host.answers import Answers, chat, pairs, parse, reply
from llamaherd.host.dial import reached
from llamaherd.host.limits import LIMITS_FORMAT
from llamaherd.host.looks.serving import DECIDING
from llamaherd.host.reach import Reach, doors
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.layout import POWER_RUN, POWER_UNIT
from llamaherd.plan import BuildPlan, InstancePlan, Plan
from llamaherd.text.render import render
from llamaherd.verify.answering import drafts, fast, health, listening, locked, serves, streams
from llamaherd.verify.brought import brought_checks, places
from llamaherd.verify.cards import on_cards
from llamaherd.verify.container import WALLS_FORMAT
from llamaherd.verify.driver import driver_checks
from llamaherd.verify.host import host_checks
from llamaherd.verify.machine import PREPROCESSED, machine_checks
from llamaherd.verify.power import QUERY, power_checks
from llamaherd.verify.process import in_place, installed, process, serving
from llamaherd.verify.report import Check, InstanceReport, Report

PROMPT = "The three primary colours are"
"""Answered by models that were taught to chat, and completed by those that were not."""
CHAT_SECONDS = 120
"""For one answer of at most 64 tokens: a big model on a slow host manages one token a second."""

_BASE_SECONDS = 60


def verify(rig: Rig, plan: Plan, remote: Remote) -> Report:
    """Ask the rig's host, and judge. Raises RemoteError where it cannot be asked."""
    result = remote.run(question(plan), _BASE_SECONDS + len(plan.instances) * (CHAT_SECONDS + 20))
    answers = parse(result.out)
    if ("end", "") not in answers:
        said = result.err.strip().splitlines()[-1:] or ["it said nothing"]
        raise RemoteError(f"the host stopped answering halfway: {said[0]}", "try again; is it out of memory?")
    return judge(rig, plan, answers, _reached(rig, plan, answers))


def _reached(rig: Rig, plan: Plan, answers: Answers) -> dict[str, Reach]:
    """Which servers for others are reached from here, of those that answer on their own host."""
    well = [each.name for each in plan.instances if reply(answers.get(("health", each.name), "")).status == 200]
    return reached(rig.connect, doors(plan, well), answers.get(("addresses", ""), "").split("\n"))


def question(plan: Plan) -> str:
    """The script that asks a host for everything; no key is in it."""
    bodies = {
        instance.name: json.dumps(
            {
                "model": instance.model,
                "messages": [{"role": "user", "content": PROMPT}],
                "stream": True,
                "temperature": 0,
                "max_tokens": 64,
            }
        )
        for instance in plan.instances
    }
    return render(
        "verify.sh.j2",
        plan=plan,
        chat=bodies,
        chat_seconds=CHAT_SECONDS,
        card_fields=QUERY,
        power_unit=POWER_UNIT,
        power_run=POWER_RUN,
        preprocessed=PREPROCESSED,
        limits=LIMITS_FORMAT,
        deciding=DECIDING,
        brought=places(plan),
        walls=WALLS_FORMAT,
    )


def judge(rig: Rig, plan: Plan, answers: Answers, reached: Mapping[str, Reach] | None = None) -> Report:
    """The report that follows from what the host said, and from which of its servers are `reached` from here."""
    builds = {build.id: build for build in plan.builds}
    return Report(
        rig=plan.rig,
        instances=tuple(
            _instance(
                rig.instances[planned.name],
                planned,
                builds.get(planned.build or ""),
                plan,
                answers,
                (reached or {}).get(planned.name),
            )
            for planned in plan.instances
        ),
        installed=tuple(installed(plan, answers)),
        machine=tuple(
            Check(*each) for checks in (host_checks, brought_checks, machine_checks) for each in checks(plan, answers)
        ),
        cards=tuple(Check(*each) for each in power_checks(plan.power, answers)) if plan.power else (),
        driver=tuple(Check(*each) for each in driver_checks(plan.driver, answers)) if plan.driver else (),
    )


def _instance(
    declared: Instance,
    planned: InstancePlan,
    build: BuildPlan | None,
    plan: Plan,
    answers: Answers,
    reach: Reach | None,
) -> InstanceReport:
    name = planned.name
    streamed = reply(answers.get(("chat", name), ""))
    said = chat(streamed.body)
    props = reply(answers.get(("props", name), ""))
    checks = [
        serving(planned, pairs(answers.get(("serving", name), "")), answers.get(("shared", name), "")),
        process(planned, answers),
        in_place(planned, build, plan, answers),
        listening(planned, answers.get(("listening", ""), "")),
        health(planned, reply(answers.get(("health", name), ""))),
        *([Check("reach", reach.ok, reach.detail, reach.doubt)] if reach else []),
        *([Check("on cards", *on_cards(planned, answers))] if planned.server.cards else []),
        *([locked(reply(answers.get(("keyless", name), "")))] if planned.key_file else []),
        *serves(declared, planned, reply(answers.get(("models", name), "")), props),
        streams(streamed, said),
        *([drafts(streamed, said)] if planned.drafts and planned.endpoint.counts_drafts else []),
        *([fast(planned.expect.decode, said)] if planned.expect and planned.expect.decode else []),
    ]
    return InstanceReport(
        name=name,
        backend=planned.backend,
        model=planned.model,
        engine=planned.engine,
        build=planned.build or planned.server.image,
        port=planned.endpoint.port,
        answer=said.answer,
        tokens_per_second=said.tokens_per_second,
        draft_n=said.draft_n,
        draft_accepted=said.draft_accepted,
        checks=tuple(checks),
    )
