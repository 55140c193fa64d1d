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
    """A frozen value that equals only itself.

    A key keeps its value alive, so that no other one can come to its place in memory.
    """

    value: T

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same object."""
        return isinstance(other, IdentityKey) and self.value is other.value

    def __hash__(self) -> int:
        """Return the identity, which is fast to compute."""
        return id(self.value)


EXPERTS = "experts=CPU"
"""Stands for the override of `experts_on_cpu`, whose pattern depends on the model's header."""


@dataclass(frozen=True)
class CommandLine:
    """The options of a server; the first `keys` arguments are from keys, those of `extra_args` follow."""

    meant: EffectiveOptions
    keys: int
    arguments: tuple[str, ...] = ()

    def is_by_key(self, option: Option) -> bool:
        """Return whether llamaherd sets the option, from a key or for every server."""
        return option.origin == "argument" and option.index < self.keys

    def own(self, *spellings: str) -> Option | None:
        """Return the option that takes effect, by any of its spellings; None if no user wrote it."""
        option = self.meant.get(*spellings)
        return option if option and not self.is_by_key(option) else None


def command_line(rig: Rig, instance: Instance, known: Catalogue) -> CommandLine:
    """Return the command line and environment of an instance's server, with names in place of paths on the host."""
    projector = model.mmproj if (model := rig.models.get(instance.model)) else None
    return _command_line(
        IdentityKey(instance), IdentityKey(known), listens_on(rig.engines[instance.engine], instance), projector
    )


@lru_cache(maxsize=1024)
def _command_line(
    of: IdentityKey[Instance], flags: IdentityKey[Catalogue], listen: str, projector: str | None
) -> CommandLine:
    """Return the command line, computed once: a dozen checks and the plan need it."""
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
    """Return the command line of an instance with `extra_args` or `environment`; None without them."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine and (instance.extra_args or instance.environment) else None
    return command_line(rig, instance, known) if known else None


__all__ = ["Task", "instance_task", "pooling", "server_task"]


def instance_task(rig: Rig, instance: Instance) -> Task:
    """Return the task of an instance's server; chat if its engine or the flags of its version are unknown."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine else None
    return server_task(command_line(rig, instance, known).meant) if known else "chat"
