"""Builds whose CMake options leave out GPUs or features that instances need."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import TRAITS, flags_of, is_on, reads_gguf
from llamaherd.inventory.schema import Card, Engine

ALL = frozenset(("all", "all-major", "native"))
"""CMake's words for every architecture, every major one, and that of the GPUs of the machine it builds on."""
ELEMENT = re.compile(r"([0-9]{2,3})([af]?)(-real|-virtual)?")


OPTION_AGAINST_RIG = Rule(
    "LH215",
    "A CMake option leaves out the GPUs that the engine's instances are on.",
    why="A build without CUDA uses no GPU; code for one architecture runs on others only within NVIDIA's rules.",
    example="""
    engines:
      main: {options: {CMAKE_CUDA_ARCHITECTURES: "120"}}
    """,
    fix="leave the option out: llamaherd builds for the GPUs in use.",
)


def check_build_architectures(subject: RigContext) -> Iterator[Finding]:
    """Report builds without CUDA for instances on GPUs, and builds for other architectures than those of the GPUs."""
    for name, engine in subject.rig.engines.items():
        cards = _cards(subject, name)
        if not engine.is_built or not cards:
            continue
        where = ("engines", name, "options")
        if not is_on(engine.options.get("GGML_CUDA", True)):
            message = f"engine `{name}` is built without CUDA, and instances of it are on GPUs"
            place = subject.document.value((*where, "GGML_CUDA"))
            yield OPTION_AGAINST_RIG.at(place, message, "leave `GGML_CUDA` out: it is on where there are GPUs")
        elif missing := [card for card in cards.items() if not _covered(engine, card[1])]:
            card, declared = missing[0]
            architectures = engine.options["CMAKE_CUDA_ARCHITECTURES"]
            message = f"engine `{name}` is built for architecture {architectures}, which GPU `{card}` "
            message += f"({declared.model}, {declared.cuda_architecture}) does not run"
            help_ = "leave `CMAKE_CUDA_ARCHITECTURES` out: it is that of the GPUs in use"
            place = subject.document.value((*where, "CMAKE_CUDA_ARCHITECTURES"))
            yield OPTION_AGAINST_RIG.at(place, message, help_)


def _cards(subject: RigContext, engine: str) -> dict[str, Card]:
    declared = subject.rig.gpus.cards if subject.rig.gpus else {}
    names = [card for each in subject.rig.instances.values() if each.engine == engine for card in each.on]
    return {name: declared[name] for name in names if name in declared}


def _covered(engine: Engine, card: Card) -> bool:
    """Return whether code of an architecture in the option runs on a GPU, or is compiled for it when it is loaded."""
    value = engine.options.get("CMAKE_CUDA_ARCHITECTURES")
    parts = [part.strip() for part in re.split("[;,]", str(value))] if value is not None else []
    if not parts or ALL & set(parts):
        return True
    found = [ELEMENT.fullmatch(part) for part in parts]
    return any(one is None or _runs(one, int(card.cuda_architecture.rstrip("af"))) for one in found)


def _runs(element: re.Match[str], card: int) -> bool:
    """Apply NVIDIA's rules: machine code within a major version, PTX upwards; `a` on that one alone, `f` in its family.

    CUDA C++ Programming Guide, "Application Compatibility".
    """
    number, exact, kind = int(element[1]), element[2], element[3]
    if exact == "a":
        return number == card
    if exact == "f" or kind == "-real":
        return number // 10 == card // 10 and number <= card
    return number <= card


LACKS = Rule(
    "LH272",
    "A build lacks a feature that an instance needs.",
    why="""
    `--rpc` needs `GGML_RPC`, every instance needs the server, and some options need each other: CMake stops, or the
    engine refuses its arguments.
    """,
    example="""
    instances:
      coder:
        extra_args: [--rpc, "192.168.1.5:50052"]
    """,
    fix="set the option of the engine, or leave the argument out.",
)


def check_build_features(subject: RigContext) -> Iterator[Finding]:
    """Report engines without a server, and builds without a feature that an argument of an instance needs."""
    for name, engine in subject.rig.engines.items():
        if engine.is_built:
            yield from _server(subject, name, engine)
            yield from _loaded_apart(subject, name, engine)
    for name, instance in subject.rig.instances.items():
        declared = subject.rig.engines.get(instance.engine)
        known = flags_of(declared) if declared else None
        if declared is None or known is None or not reads_gguf(declared):
            continue
        rpc = next((index for index, word in enumerate(instance.extra_args) if word == "--rpc"), None)
        # Releases have RPC (llama.cpp b11434, .github/workflows/release.yml).
        if rpc is None or declared.release or (declared.source and is_on(declared.options.get("GGML_RPC", False))):
            continue
        place = subject.document.word(("instances", name, "extra_args"), instance.extra_args, rpc)
        if declared.source:
            message = f"`--rpc` is refused by engine `{instance.engine}`, which is built without RPC"
            help_ = f"add `options: {{GGML_RPC: true}}` to engine `{instance.engine}`"
            yield LACKS.at(place, message, help_)


def _server(subject: RigContext, name: str, engine: Engine) -> Iterator[Finding]:
    for option in TRAITS[engine.kind].server_options:
        if option in engine.options and not is_on(engine.options[option]):
            place = subject.document.key(("engines", name, "options", option))
            yield LACKS.at(place, f"with `{option}` off, engine `{name}` has no server", "leave it out")


def _loaded_apart(subject: RigContext, name: str, engine: Engine) -> Iterator[Finding]:
    """Report options that llama.cpp b11434, ggml/src/CMakeLists.txt, refuses: backends that are both loaded as
    libraries and linked in.
    """
    options = engine.options
    apart = is_on(options.get("GGML_BACKEND_DL", False))
    place = subject.document.key(("engines", name, "options", "GGML_BACKEND_DL"))
    if apart and "BUILD_SHARED_LIBS" in options and not is_on(options["BUILD_SHARED_LIBS"]):
        message = "`GGML_BACKEND_DL` loads backends as libraries, and `BUILD_SHARED_LIBS` is off: CMake stops"
        yield LACKS.at(place, message, "leave out one of the two")
    if is_on(options.get("GGML_CPU_ALL_VARIANTS", False)) and not apart and TRAITS[engine.kind].variants_need_libraries:
        place = subject.document.key(("engines", name, "options", "GGML_CPU_ALL_VARIANTS"))
        message = "`GGML_CPU_ALL_VARIANTS` needs `GGML_BACKEND_DL`: CMake stops without it"
        yield LACKS.at(place, message, "add `GGML_BACKEND_DL: true`, or leave it out: this host needs one variant")
