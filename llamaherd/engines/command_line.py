"""One server's whole command line and environment as the engine reads them, and what of it comes from keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from llamaherd.engines import DIALECTS, Server, flags_of, listens_on
from llamaherd.engines.flags.meant import Meant, Option, meant
from llamaherd.engines.flags.model import Catalogue
from llamaherd.engines.same import Same
from llamaherd.inventory.schema import Instance, Rig

EXPERTS = "experts=CPU"
"""Stands for the override that `experts_on_cpu` makes, whose pattern a model's header tells."""


@dataclass(frozen=True)
class CommandLine:
    """What a server is told; the first `keys` arguments are from keys, those of `extra_args` follow."""

    meant: Meant
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
    return _command_line(Same(instance), Same(known), listens_on(rig.engines[instance.engine], instance), projector)


@lru_cache(maxsize=1024)
def _command_line(of: Same[Instance], flags: Same[Catalogue], listen: str, projector: str | None) -> CommandLine:
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
    return CommandLine(meant(known, arguments, instance.environment), len(keys), arguments)


def by_hand(rig: Rig, instance: Instance) -> CommandLine | None:
    """The same for an instance of which something is written word for word; None where keys say all of it."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine and (instance.extra_args or instance.environment) else None
    return command_line(rig, instance, known) if known else None
