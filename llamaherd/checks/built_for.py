"""What arguments want of a build that its CMake options leave out."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS, flags_of, is_on, reads_gguf
from llamaherd.inventory.schema import Engine

LACKS = Rule(
    "LH272",
    "A build lacks what an instance wants of it.",
    why="""
    `--rpc` wants `GGML_RPC`, every instance wants the server, and some options want each other: CMake stops, or
    the engine refuses its arguments.
    """,
    example="""
    instances:
      coder:
        extra_args: [--rpc, "192.168.1.5:50052"]
    """,
    way_out="set the option of the engine, or leave the argument out.",
)


def built_for(subject: RigContext) -> Iterator[Finding]:
    """Engines without a server, and builds without what an argument of an instance is about."""
    for name, engine in subject.rig.engines.items():
        if engine.source is not None:
            yield from _server(subject, name, engine)
            yield from _loaded_apart(subject, name, engine)
    for name, instance in subject.rig.instances.items():
        declared = subject.rig.engines.get(instance.engine)
        known = flags_of(declared) if declared else None
        if declared is None or known is None or not reads_gguf(declared):
            continue
        rpc = next((index for index, word in enumerate(instance.extra_args) if word == "--rpc"), None)
        if rpc is None or (declared.source and is_on(declared.options.get("GGML_RPC", False))):
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
    """llama.cpp b11434, ggml/src/CMakeLists.txt: CMake stops at backends that are loaded apart and linked in."""
    options = engine.options
    apart = is_on(options.get("GGML_BACKEND_DL", False))
    place = subject.document.key(("engines", name, "options", "GGML_BACKEND_DL"))
    if apart and "BUILD_SHARED_LIBS" in options and not is_on(options["BUILD_SHARED_LIBS"]):
        message = "`GGML_BACKEND_DL` loads backends as libraries, and `BUILD_SHARED_LIBS` is off: CMake stops"
        yield LACKS.at(place, message, "leave out one of the two")
    if is_on(options.get("GGML_CPU_ALL_VARIANTS", False)) and not apart and TRAITS[engine.kind].variants_need_libraries:
        place = subject.document.key(("engines", name, "options", "GGML_CPU_ALL_VARIANTS"))
        message = "`GGML_CPU_ALL_VARIANTS` wants `GGML_BACKEND_DL`: CMake stops without it"
        yield LACKS.at(place, message, "add `GGML_BACKEND_DL: true`, or leave it out: this host needs one variant")
