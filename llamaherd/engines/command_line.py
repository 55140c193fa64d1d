"""The command line and environment of one server as the engine reads them, and the task of that server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from llamaherd.engines import DIALECTS, Server, flags_of, listens_on
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.effective import EffectiveOptions, Option, effective_options
from llamaherd.engines.flags.task import Task, pooling, server_task
from llamaherd.inventory.schema import Instance, Rig

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class IdentityKey(Generic[T]):
    """A frozen value that is the same as itself alone.

    A key keeps its value alive, so that no other one can come to its place in memory.
    """

    value: T

    def __eq__(self, other: object) -> bool:
        """Whether it is that very value."""
        return isinstance(other, IdentityKey) and self.value is other.value

    def __hash__(self) -> int:
        """A hash that costs nothing to find."""
        return id(self.value)


EXPERTS = "experts=CPU"
"""Stands for the override that `experts_on_cpu` makes, whose pattern a model's header tells."""


@dataclass(frozen=True)
class CommandLine:
    """What a server is told; the first `keys` arguments are from keys, those of `extra_args` follow."""

    meant: EffectiveOptions
    keys: int
    arguments: tuple[str, ...] = ()

    def is_by_key(self, option: Option) -> bool:
        """Whether llamaherd says it, from a key or by itself."""
        return option.origin == "argument" and option.index < self.keys

    def own(self, *spellings: str) -> Option | None:
        """The option that counts, by any of its spellings, where it is written word for word."""
        option = self.meant.get(*spellings)
        return option if option and not self.is_by_key(option) else None


def command_line(rig: Rig, instance: Instance, known: Catalogue) -> CommandLine:
    """The whole command line and environment of an instance's server; what lies on the host stands under its name."""
    projector = model.mmproj if (model := rig.models.get(instance.model)) else None
    return _command_line(
        IdentityKey(instance), IdentityKey(known), listens_on(rig.engines[instance.engine], instance), projector
    )


@lru_cache(maxsize=1024)
def _command_line(
    of: IdentityKey[Instance], flags: IdentityKey[Catalogue], listen: str, projector: str | None
) -> CommandLine:
    """Read once: a dozen checks ask for it, and the plan."""
    instance, known = of.value, flags.value
    server = Server(
        instance.model_copy(update={"extra_args": ()}),
        model_path=instance.model,
        threads=instance.threads or 1,
        listen=listen,
        overrides=(EXPERTS,) if instance.moves_experts else (),
        flags=known,
        draft_path=instance.draft.model if instance.draft else None,
        mmproj_path=projector,
    )
    keys = DIALECTS[known.kind].arguments(server)
    arguments = (*keys, *instance.extra_args)
    return CommandLine(effective_options(known, arguments, instance.environment), len(keys), arguments)


def overridden_command_line(rig: Rig, instance: Instance) -> CommandLine | None:
    """The same for an instance of which something is written word for word; None where keys say all of it."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine and (instance.extra_args or instance.environment) else None
    return command_line(rig, instance, known) if known else None


__all__ = ["Task", "instance_task", "pooling", "server_task"]


def instance_task(rig: Rig, instance: Instance) -> Task:
    """Return what an instance's server is for; chat where its engine, or the flags of its version, are unknown."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine else None
    return server_task(command_line(rig, instance, known).meant) if known else "chat"
