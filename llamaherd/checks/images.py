"""Images of engines: names that moved, tags that move, and images that hold no server or not the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS
from llamaherd.inventory.schema import Engine, Rig
from llamaherd.reference.toolchains import BLACKWELL

LLAMA_CPP = "ghcr.io/ggml-org/llama.cpp"
IK_LLAMA_CPP = "ghcr.io/ikawrakow/ik-llama-cpp"

MOVED = {"ghcr.io/ggerganov/llama.cpp": LLAMA_CPP}
"""Names that images had, and what they are called now."""

ENGINE_OF_IMAGE = {image: kind for kind, traits in TRAITS.items() for image in traits.images}
"""Whose flags the server of an official image takes."""

# What names one build in a tag: `b11434`, `4000`, `v0.11.0`, a commit. Such a tag is not given to another one.
_VERSION = re.compile(r"(?:^|[-_.])(?:b?\d{3,}|v?\d+\.\d+|[0-9a-f]{7,40}\b)")


@dataclass(frozen=True)
class Image:
    """The image of an engine."""

    rig: Rig
    name: str
    """The engine's."""
    engine: Engine
    repository: str
    tag: str | None
    place: Place


def images(subject: RigContext) -> Iterator[Finding]:
    """What is wrong with the images that engines are run from."""
    for name, engine in subject.rig.engines.items():
        if engine.image is not None:
            place = subject.document.value(("engines", name, "image"))
            image = Image(subject.rig, name, engine, untagged(engine.image), _tag(engine.image), place)
            yield from _moved(image)
            if image.repository not in MOVED:
                yield from _moving(image)
                yield from _other_server(image)
                yield from _compiles(image)


MOVED_IMAGE = Rule(
    "LH071",
    "An image has moved.",
    why="llama.cpp's images are under `ghcr.io/ggml-org`. The old name gets no new ones.",
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggerganov/llama.cpp:full-cuda"}
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003, backend: compose}
    """,
    way_out="write the name of the help line.",
)


def _moved(image: Image) -> Iterator[Finding]:
    if now := MOVED.get(image.repository):
        message = f"`{image.repository}` gets no new images: the project moved to `{now}`"
        help_ = f"write `image: {now}:{_server_tag(now, image.tag)}`, and `herd lock` finds its digest"
        yield MOVED_IMAGE.at(image.place, message, help_)


MOVING_TAG = Rule(
    "LH070",
    "An image is named by a tag that moves.",
    why="""
    `server-cuda`, `latest` and their like name another build from day to day. The lock holds what the tag stood
    for, so a rig stays the same until `herd lock --upgrade`. But a reader of the YAML cannot tell what runs, and
    its flags cannot be checked.
    """,
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:server-cuda13"}
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003, backend: compose}
    """,
    way_out="write the tag of one build, such as `server-cuda13-b11434`, or `NAME@sha256:…`.",
    severity="warning",
)


def _moving(image: Image) -> Iterator[Finding]:
    if not image.engine.digest and not _VERSION.search(image.tag or ""):
        tag = image.tag
        what = f"`{tag}` is a tag that moves" if tag else "an image without a tag is the one tagged `latest`"
        help_ = f"write `image: {image.repository}@sha256:…`, or the tag of one build, whose digest `herd lock` finds"
        yield MOVING_TAG.at(image.place, f"{what}: it names another build from day to day", help_)


OTHER_SERVER = Rule(
    "LH072",
    "An image does not hold the server that is wanted.",
    why="""
    It is another engine's. Or it starts another program (`full`, `light`, `swap`). Or it computes on the CPU
    alone and the instance is on a GPU.
    """,
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:light-cuda"}
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003, backend: compose}
    """,
    way_out="write the image of the help line, or the right `kind`.",
)


def _other_server(image: Image) -> Iterator[Finding]:
    if wrong := _not_its_server(image):
        yield OTHER_SERVER.at(image.place, *wrong)


def _not_its_server(image: Image) -> tuple[str, str] | None:
    """Why an official image would not serve what it is meant to, and what to write."""
    repository, tag, kind = image.repository, image.tag, ENGINE_OF_IMAGE.get(image.repository)
    if kind is not None and kind != image.engine.kind:
        message = f"`{repository}` is an image of {kind}, and engine `{image.name}` is of kind {image.engine.kind}"
        return message, f"write `kind: {kind}`"
    if repository not in (LLAMA_CPP, IK_LLAMA_CPP) or tag is None:
        return None
    right = _server_tag(repository, tag)
    if re.search(r"(^|-)(full|light|swap)\b", tag):
        return f"`{tag}` does not start a server by itself", f"write `image: {repository}:{right}`"
    on_gpus = any(instance.on for instance in image.rig.instances.values() if instance.engine == image.name)
    if on_gpus and re.fullmatch(r"server(-b\d+)?|cpu-server(-.+)?", tag):
        right = re.sub(r"^server", "server-cuda", tag) if repository == LLAMA_CPP else re.sub("^cpu", "cu13", tag)
        message = f"`{tag}` computes on the CPU alone, and `{image.name}` is to run on a GPU"
        return message, f"write `image: {repository}:{right}`"
    return None


COMPILES_AT_START = Rule(
    "LH073",
    "An image is not built for the GPU, and compiles its kernels at first start.",
    why="""
    ik_llama.cpp's images hold code for 86 and 90. On a Blackwell GPU CUDA compiles it again, once, which takes
    minutes.
    """,
    example="""
    gpus:
      cards:
        big: {model: RTX 5090}
    engines:
      main: {kind: ik_llama.cpp, ref: null, image: "ghcr.io/ikawrakow/ik-llama-cpp:cu13-server"}
    instances:
      coder: {backend: compose}
      helper: {backend: compose}
    """,
    way_out="build the engine from a `ref`, or allow for it with `load_timeout`.",
    severity="note",
)


def _compiles(image: Image) -> Iterator[Finding]:
    card = _blackwell(image.rig, image.name) if image.repository == IK_LLAMA_CPP else None
    if card and not _not_its_server(image):
        message = f"ik_llama.cpp's images are built for 86 and 90, so that `{card}` compiles them anew at first start"
        help_ = "build the engine from a `source` to have it ready, or allow for it with `load_timeout`"
        yield COMPILES_AT_START.at(image.place, message, help_)


def _blackwell(rig: Rig, engine: str) -> str | None:
    """The first Blackwell GPU that an instance of this engine is on."""
    cards = rig.gpus.cards if rig.gpus else {}
    used = [name for each in rig.instances.values() if each.engine == engine for name in each.on if name in cards]
    return next((name for name in used if int(cards[name].cuda_architecture.rstrip("af")) >= BLACKWELL), None)


def untagged(image: str) -> str:
    """An image's name without its tag and digest: `ghcr.io/ggml-org/llama.cpp`."""
    return re.sub(r":[^:/]*$", "", image.split("@", 1)[0])


def _tag(image: str) -> str | None:
    match = re.search(r":([^:/]+)$", image.split("@", 1)[0])
    return match[1] if match else None


def _server_tag(repository: str, tag: str | None) -> str:
    """The tag of the image with the server that goes with another one, such as `server-cuda` with `light-cuda`."""
    if repository == IK_LLAMA_CPP:
        return re.sub(r"-(full|swap)\b.*", "-server", tag or "cu13-server")
    if tag is None or not re.match(r"(full|light|server)\b", tag):
        return "server-cuda"
    return re.sub(r"^(full|light)\b", "server", tag)
