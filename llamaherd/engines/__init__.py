"""Engines by kind: each module has one engine's traits and build options."""

from __future__ import annotations

import re

from llamaherd.engines.dialect import Arithmetic, Dialect, Server, Traits
from llamaherd.engines.flags.definitions import Catalogue, assumed, catalogue_of_build
from llamaherd.engines.ik_llama_cpp import IkLlamaCpp
from llamaherd.engines.llama_cpp import LlamaCpp
from llamaherd.engines.vllm import Vllm
from llamaherd.inventory.schema import Engine, Instance, Rig
from llamaherd.reference.releases import is_release

DIALECTS: dict[str, Dialect] = {dialect.kind: dialect for dialect in (LlamaCpp(), IkLlamaCpp(), Vllm())}
TRAITS: dict[str, Traits] = {kind: dialect.traits for kind, dialect in DIALECTS.items()}
SIZED = {kind: traits.arithmetic for kind, traits in TRAITS.items() if traits.arithmetic}
"""Engines whose memory is computed from a model's header."""
USUAL = LlamaCpp.kind
"""The default engine."""

__all__ = [
    "DIALECTS",
    "SIZED",
    "TRAITS",
    "USUAL",
    "Arithmetic",
    "Dialect",
    "Server",
    "Traits",
    "flags_of",
    "has_own_network",
    "is_on",
    "listens_on",
    "on_host_network",
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


def flags_of(engine: Engine) -> Catalogue | None:
    """Return the flags of the pinned version, or the assumed ones if they are unknown; None without any."""
    version = version_of(engine)
    known = assumed(engine.kind, version)
    if known is None or known.exact or not engine.built:
        return known
    return catalogue_of_build(known, (version or "as built")[:9], engine.built)


def on_host_network(engine: Engine, declared: Instance) -> bool:
    """Return whether a container listens on the host's own loopback, which no other machine reaches."""
    return declared.backend == "compose" and declared.loopback and not DIALECTS[engine.kind].opens_ports


def has_own_network(engine: Engine, declared: Instance) -> bool:
    """Return whether a container has a network of its own, from which Docker publishes its port."""
    return declared.backend == "compose" and not on_host_network(engine, declared)


def listens_on(engine: Engine, declared: Instance) -> str:
    """Return the address on which a server listens: all addresses if Docker publishes its port on `listen`."""
    return "0.0.0.0" if has_own_network(engine, declared) else declared.listen
