"""Whether each instance of a group answers as declared: its model was asked for, and loaded for that. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llamaherd.host.answers import Reply, chat, objects, reply
from llamaherd.inventory.schema import Rig
from llamaherd.plan import InstancePlan, MemberPlan
from llamaherd.role.report import Check
from roles.serve.onhost.verified import Responses
from roles.serve.verify.answering import context, drafts, fast, streams


def member_checks(
    rig: Rig, planned: InstancePlan, member: MemberPlan, models: Reply, responses: Responses
) -> Iterator[Check]:
    """What is asked of one of them, each by its name."""
    props = reply(responses.props.get(member.name, ""))
    streamed = reply(responses.chats.get(member.name, ""))
    said = chat(streamed.body)
    found = [_model(planned, member, models, props), context(rig.instances[member.name], props)]
    found += [streams(streamed, said)]
    found += [drafts(streamed, said)] if member.drafts and planned.endpoint.counts_drafts else []
    found += [fast(member.expect.decode, said)] if member.expect and member.expect.decode else []
    yield from (replace(each, name=f"{member.name}: {each.name}") for each in found)


def _model(planned: InstancePlan, member: MemberPlan, models: Reply, props: Reply) -> Check:
    """The server lists its models and no others, and has loaded this one from its file."""
    if problem := models.problem or props.problem:
        return Check("model", False, problem)
    names = sorted(str(model.get("id")) for model in objects(models.json.get("data")))
    path = props.json.get("model_path")
    listed = names == sorted(planned.endpoint.models)
    detail = f"{member.model} from {path}" if listed else f"it lists {', '.join(names) or 'none'}"
    right = listed and path == member.model_path
    return Check("model", right, detail if right else f"{detail}; declared is {member.model} from {member.model_path}")
