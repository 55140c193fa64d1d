"""Engines by kind, and the command line of a server as its engine reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamaherd.engines.dialect import Arithmetic, Dialect, Server, Traits
from llamaherd.engines.flags.definitions import Catalogue, assumed, catalogue_of_build
from llamaherd.engines.flags.effective import EffectiveOptions, Option, effective_options
from llamaherd.engines.llama_cpp import IkLlamaCpp, LlamaCpp
from llamaherd.engines.vllm import Vllm
from llamaherd.inventory.schema import Engine, Instance, Rig
from llamaherd.inventory.schema.key_flags import key_arguments
from llamaherd.reference.releases import is_release

DIALECTS: dict[str, Dialect] = {dialect.kind: dialect for dialect in (LlamaCpp(), IkLlamaCpp(), Vllm())}
TRAITS: dict[str, Traits] = {kind: dialect.traits for kind, dialect in DIALECTS.items()}
SIZED = {kind: traits.arithmetic for kind, traits in TRAITS.items() if traits.arithmetic}
"""Engines whose memory is computed from a model's header."""
USUAL = LlamaCpp.kind
"""The default engine."""

__all__ = [
    "DIALECTS",
    "EXPERTS",
    "SIZED",
    "TRAITS",
    "USUAL",
    "Arithmetic",
    "CommandLine",
    "Dialect",
    "Server",
    "Traits",
    "command_line",
    "explicit_command",
    "flags_of",
    "has_explicit_options",
    "has_own_network",
    "is_on",
    "listens_on",
    "reads_gguf",
    "served_whole",
    "tagged_version",
    "version_of",
]


def is_on(value: str | int | bool) -> bool:
    """Return whether CMake reads an option's value as true."""
    return str(value).upper() not in {"0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", ""}


def reads_gguf(engine: Engine | None) -> bool:
    """Return whether an engine is declared and serves GGUF files, so that keys place layers, experts and caches."""
    return engine is not None and TRAITS[engine.kind].reads_gguf


def served_whole(rig: Rig) -> set[str]:
    """Return the models of engines that read a repository's folder instead of a GGUF file."""
    return {
        instance.model
        for instance in rig.instances.values()
        if (engine := rig.engines.get(instance.engine)) and not reads_gguf(engine)
    }


def version_of(engine: Engine) -> str | None:
    """Return what identifies an engine's flags: the key `flags`, build number, release or commit, or the image's tag.

    None if nothing does.
    """
    traits = TRAITS[engine.kind]
    if engine.flags or engine.source is None:
        return engine.flags or tagged_version(engine.kind, engine.image or "")
    number, ref = engine.source.build_number, engine.source.ref or ""
    if traits.numbers_builds and (number or is_release(ref)):
        return f"b{number}" if number else ref
    return engine.source.commit


def tagged_version(kind: str, image: str) -> str | None:
    """Return the build or release that the tag of an engine's official image contains; None for any other image."""
    traits = TRAITS[kind]
    name, _, tag = image.partition("@")[0].rpartition(":")
    if name not in traits.images:
        return None
    found = re.search(
        r"(?:^|-)(b\d{3,6}|v\d+(?:\.\d+){1,2})$" if traits.numbers_builds else r"^(v?\d+(?:\.\d+)+)(?=-|$)", tag
    )
    return found[1] if found else None


def flags_of(engine: Engine) -> Catalogue:
    """Return the flags of the pinned version, or the assumed ones if they are unknown."""
    version = version_of(engine)
    known = assumed(engine.kind, version)
    if known.exact or not engine.built:
        return known
    return catalogue_of_build(known, (version or "as built")[:9], engine.built)


def has_own_network(engine: Engine, declared: Instance) -> bool:
    """Return whether a container has a network of its own, from which Docker publishes its port.

    Otherwise it listens on the host's own loopback, which no other machine reaches.
    """
    return declared.backend == "compose" and (DIALECTS[engine.kind].opens_ports or not declared.loopback)


def listens_on(engine: Engine, declared: Instance) -> str:
    """Return the address on which a server listens: all addresses if Docker publishes its port on `listen`."""
    return "0.0.0.0" if has_own_network(engine, declared) else declared.listen


EXPERTS = "experts=CPU"
"""Stands for the override of `experts_on_cpu`, whose pattern depends on the model's header."""


@dataclass(frozen=True)
class CommandLine:
    """The options of a server; the first `keys` arguments are from keys, those of `extra_args` follow."""

    effective: EffectiveOptions
    keys: int
    arguments: tuple[str, ...] = ()

    def is_by_key(self, option: Option) -> bool:
        """Return whether llamaherd sets the option, from a key or for every server."""
        return option.origin == "argument" and option.index < self.keys

    def own(self, *spellings: str) -> Option | None:
        """Return the option that takes effect, by any of its spellings; None if no user wrote it."""
        option = self.effective.get(*spellings)
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
    keys = key_arguments(known.kind, server)
    arguments = (*keys, *instance.extra_args)
    return CommandLine(effective_options(known, arguments, instance.environment), len(keys), arguments)


def has_explicit_options(instance: Instance) -> bool:
    """Return whether an instance has arguments or variables besides its keys."""
    return bool(instance.extra_args or instance.environment)


def explicit_command(instance: Instance, command: CommandLine | None) -> CommandLine | None:
    """Return the command line of an instance if it has arguments or variables besides its keys."""
    return command if has_explicit_options(instance) else None
