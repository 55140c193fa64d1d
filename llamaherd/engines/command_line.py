"""The command line and environment of one server as the engine reads them."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.engines import DIALECTS, Server, listens_on
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.effective import EffectiveOptions, Option, effective_options
from llamaherd.inventory.schema import Instance, Rig

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
    """Return the command line and environment of an instance's server; paths on the host are names of models."""
    model = rig.models.get(instance.model)
    server = Server(
        instance.model_copy(update={"extra_args": ()}),
        model_path=instance.model,
        threads=instance.threads or 1,
        listen=listens_on(rig.engines[instance.engine], instance),
        overrides=(EXPERTS,) if instance.moves_experts else (),
        flags=known,
        draft_path=instance.draft.model if instance.draft else None,
        mmproj_path=model.mmproj if model else None,
    )
    keys = DIALECTS[known.kind].arguments(server)
    arguments = (*keys, *instance.extra_args)
    return CommandLine(effective_options(known, arguments, instance.environment), len(keys), arguments)


def has_explicit_options(instance: Instance) -> bool:
    """Return whether an instance has arguments or variables besides its keys."""
    return bool(instance.extra_args or instance.environment)


def explicit_command(instance: Instance, command: CommandLine | None) -> CommandLine | None:
    """Return the command line of an instance if it has arguments or variables besides its keys."""
    return command if has_explicit_options(instance) else None
