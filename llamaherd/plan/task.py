"""What a planned server is for: chats, embeddings or rerank, by the arguments that it is started with."""

from __future__ import annotations

from llamaherd.diagnostics.findings import UserError
from llamaherd.engines.flags.definitions import assumed
from llamaherd.engines.flags.effective import EffectiveOptions, effective_options
from llamaherd.engines.flags.task import BATCH, UBATCH, Task, server_task
from llamaherd.plan.instance import InstancePlan, MemberPlan
from llamaherd.plan.server import Endpoint

_PATHS = {"embeddings": "/v1/embeddings", "rerank": "/v1/rerank"}


def planned_task(instance: InstancePlan, member: MemberPlan | None = None) -> Task:
    """Return what a planned server is for, by what it is started with; of a group, what a member is for."""
    options = _options(instance, member)
    return "chat" if options is None else server_task(options)


def task_path(endpoint: Endpoint, task: Task) -> str:
    """Return the path to which clients send the requests that a server is for."""
    return _PATHS.get(task, endpoint.chat_path)


def longest_input(instance: InstancePlan) -> int:
    """Return the most tokens of one input of a server of embeddings or rerank: of llama.cpp, those of a batch."""
    slot = instance.context // max(1, instance.endpoint.streams)
    options = _options(instance, None)
    if options is None or instance.endpoint.props_path is None:
        return slot
    computed = options.number("--ubatch-size", default=UBATCH) or slot
    return max(1, min(slot, options.number("--batch-size", default=BATCH), computed))


def require_chats(instance: InstancePlan, what: str) -> None:
    """Raise UserError for a server of embeddings or rerank. `what` sends chats."""
    task = planned_task(instance)
    if task != "chat":
        message = f"{instance.name} is a server of {task}, and {what} sends chats"
        raise UserError(message, f"test it with `herd verify`, or measure it with `herd bench {instance.name}`")


def _options(instance: InstancePlan, member: MemberPlan | None) -> EffectiveOptions | None:
    # vLLM alone has no page of properties.
    catalogue = assumed("llama.cpp" if instance.endpoint.props_path else "vllm", None)
    if catalogue is None:
        return None
    return effective_options(catalogue, (member or instance.server).arguments, instance.server.environment)
