"""The facts that the proof of a server is given beside its prompt: what it serves, where, and what its pages are."""

from __future__ import annotations

from llamaherd.engines.flags import assumed
from llamaherd.engines.flags.meant import meant
from llamaherd.engines.task import Task, server_task
from llamaherd.plan import InstancePlan

_PATHS = {"embeddings": "/v1/embeddings", "rerank": "/v1/rerank"}


def proof(instance: InstancePlan) -> dict[str, object]:
    """Return what is declared of a server, for `roles/serve/onhost/prove.py`; no key is in it."""
    endpoint = instance.endpoint
    kind = planned_task(instance)
    props = endpoint.props_path
    return {
        "kind": kind,
        "url": endpoint.url(_PATHS.get(kind, endpoint.chat_path)),
        "models": list(endpoint.models),
        "models_path": endpoint.models_path,
        "props_path": endpoint.of_model(props, instance.model) if props else None,
        "health_path": endpoint.health_path,
        "listen": endpoint.listen,
        # vLLM's workers find each other by ports of their own.
        "closed": props is not None,
        "context": instance.context // max(1, endpoint.streams),
    }


def planned_task(instance: InstancePlan) -> Task:
    """Return what a planned server is for, by what it is started with. vLLM alone has no page of properties."""
    catalogue = assumed("llama.cpp" if instance.endpoint.props_path else "vllm", None)
    if catalogue is None:
        return "chat"
    return server_task(meant(catalogue, instance.server.arguments, instance.server.environment))
