"""Images of engines: names that moved, tags that move, and images that hold no server or not the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
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


def images(subject: RigContext) -> Iterator[Finding]:
    """What is wrong with the images that engines are run from."""
    for name, engine in subject.rig.engines.items():
        if engine.image is None:
            continue
        place = subject.document.value(("engines", name, "image"))
        repository, tag = image_name(engine.image), _tag(engine.image)
        if repository in MOVED:
            official = f"{MOVED[repository]}:{_server_tag(MOVED[repository], tag)}"
            message = f"`{repository}` gets no new images: the project moved to `{MOVED[repository]}`"
            yield Finding("LH071", place, message, f"write `image: {official}`, and `herd lock` finds its digest")
            continue
        if not engine.digest and not _VERSION.search(tag or ""):
            what = f"`{tag}` is a tag that moves" if tag else "an image without a tag is the one tagged `latest`"
            help_ = f"write `image: {repository}@sha256:…`, or the tag of one build, whose digest `herd lock` finds"
            yield Finding("LH070", place, f"{what}: it names another build from day to day", help_, "warning")
        if wrong := _not_its_server(subject.rig, name, engine, repository, tag):
            yield Finding("LH072", place, *wrong)
        elif repository == IK_LLAMA_CPP and (card := _blackwell(subject.rig, name)):
            message = (
                f"ik_llama.cpp's images are built for 86 and 90, so that `{card}` compiles them anew at first start"
            )
            help_ = "build the engine from a `source` to have it ready, or allow for it with `load_timeout`"
            yield Finding("LH073", place, message, help_, "note")


def image_name(image: str) -> str:
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


def _not_its_server(rig: Rig, name: str, engine: Engine, repository: str, tag: str | None) -> tuple[str, str] | None:
    """Why an official image would not serve what it is meant to, and what to write."""
    kind = ENGINE_OF_IMAGE.get(repository)
    if kind is not None and kind != engine.kind:
        return (
            f"`{repository}` is an image of {kind}, and engine `{name}` is of kind {engine.kind}",
            f"write `kind: {kind}`",
        )
    if repository not in (LLAMA_CPP, IK_LLAMA_CPP) or tag is None:
        return None
    right = _server_tag(repository, tag)
    if re.search(r"(^|-)(full|light|swap)\b", tag):
        return f"`{tag}` does not start a server by itself", f"write `image: {repository}:{right}`"
    on_cards = any(instance.on for instance in rig.instances.values() if instance.engine == name)
    if on_cards and re.fullmatch(r"server(-b\d+)?|cpu-server(-.+)?", tag):
        right = re.sub(r"^server", "server-cuda", tag) if repository == LLAMA_CPP else re.sub("^cpu", "cu13", tag)
        return (
            f"`{tag}` computes on the CPU alone, and `{name}` is to run on a card",
            f"write `image: {repository}:{right}`",
        )
    return None


def _blackwell(rig: Rig, engine: str) -> str | None:
    """The first Blackwell card that an instance of this engine is on."""
    cards = rig.gpus.cards if rig.gpus else {}
    used = [name for each in rig.instances.values() if each.engine == engine for name in each.on if name in cards]
    return next((name for name in used if int(cards[name].cuda_architecture.rstrip("af")) >= BLACKWELL), None)
