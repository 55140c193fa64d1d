"""What an instance's server is for: chat, embeddings or rerank."""

from __future__ import annotations

from llamaherd.engines import flags_of
from llamaherd.engines.command_line import command_line
from llamaherd.engines.flags.embedding import Task, pooling, server_task
from llamaherd.inventory.schema import Instance, Rig

__all__ = ["Task", "instance_task", "pooling", "server_task"]


def instance_task(rig: Rig, instance: Instance) -> Task:
    """Return what an instance's server is for; chat where its engine, or the flags of its version, are unknown."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine else None
    return server_task(command_line(rig, instance, known).meant) if known else "chat"
