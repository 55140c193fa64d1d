"""How GPUs share a model: modes that an engine lacks, settings without effect."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS, reads_gguf
from llamaherd.engines.command_line import by_hand
from llamaherd.engines.flags.placing import NO_SPLIT
from llamaherd.inventory.schema import Engine, Instance, Rig
from llamaherd.memory.instances import placement
from llamaherd.memory.laid import places_of

NO_SPLIT_BUFFERS = 9890
"""The first build of llama.cpp whose CUDA devices have none, so that `row` fails: ggml-org/llama.cpp#25884 names it,
#27465 shows CUDA's error, and b10108 has none in ggml-cuda.cu."""


def splitting(subject: RigContext) -> Iterator[Finding]:
    """Split modes that do not go with the engine or the number of GPUs."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or not reads_gguf(engine):
            continue
        place = subject.document.value(("instances", name, "split"))
        if refused := _refused(instance, engine):
            yield NO_SPLIT.at(place, *refused)
        else:
            yield from _without_effect(subject, name, instance)


CUT_BY_FREE_MEMORY = Rule(
    "LH242",
    "A model is cut by what its GPUs have free, and others hold some of that.",
    why="""
    Without `tensor_split`, llama.cpp and ik_llama.cpp give each of several GPUs its part by what it has free as
    the server starts. Other servers on some of these GPUs may run by then or not: layers move, and a GPU can be
    too full.
    """,
    example="""
    gpus:
      cards:
        second: {model: RTX 3090, uuid: GPU-0b1f2e7a-5c1d-4c0e-9a55-3f1f0a7c2b11}
    instances:
      coder: {on: [big, second], draft: null}
      third: {engine: main, model: 35b, on: [second], gpu_layers: 4, context: 4096, port: 8003}
    """,
    way_out="write `tensor_split`, with the parts of the help line.",
    severity="warning",
)


def shared_cards(subject: RigContext) -> Iterator[Finding]:
    """Models cut by what GPUs have free as their server starts, beside servers that hold some of it (LH242)."""
    rig, document = subject.rig, subject.document
    for name, instance in rig.instances.items():
        engine = rig.engines.get(instance.engine)
        if engine is None or not reads_gguf(engine) or len(instance.on) < 2 or _is_cut_by_hand(rig, instance):
            continue
        others = [
            key
            for key, other in rig.instances.items()
            if rig.server_of(key) != rig.server_of(name) and set(other.on) & set(instance.on)
        ]
        # What each GPU gives alike changes nothing.
        if not others or all(set(instance.on) <= set(rig.instances[key].on) for key in others):
            continue
        beside = " and ".join(f"`{other}`" for other in others)
        message = f"{engine.kind} cuts the model by what each GPU has free when `{name}` starts, and {beside} "
        message += "may run by then or not"
        parts = ", ".join(_parts(subject, instance))
        help_ = f"write `tensor_split: [{parts}]`, or other parts that go with what {beside} holds"
        yield CUT_BY_FREE_MEMORY.at(document.value(("instances", name, "on")), message, help_)


def _is_cut_by_hand(rig: Rig, instance: Instance) -> bool:
    """Whether the parts of the GPUs are said, or there are none."""
    line = by_hand(rig, instance)
    split = line.meant.text("--split-mode") if line else instance.split
    return bool(instance.tensor_split or split == "none" or (line and line.own("--tensor-split")))


def _parts(subject: RigContext, instance: Instance) -> list[str]:
    """The layers that each GPU is planned to hold; alike where the model is not known."""
    header = subject.headers.get(instance.model)
    try:
        placed = placement(subject.rig, instance, header) if header else None
    except ValueError:
        placed = None
    if header is None or placed is None:
        return ["1"] * len(instance.on)
    places = places_of(header, placed)
    return [str(places.count(card)) for card in range(len(instance.on))]


def _refused(instance: Instance, engine: Engine) -> tuple[str, str] | None:
    """Why the server would not start with this split mode, and what to write."""
    number = engine.source.build_number if engine.source else None
    split, kind = instance.split, engine.kind
    if split is None:
        return None
    if split not in TRAITS[kind].splits:
        return _of_another(split, kind)
    match split:
        case "row" if number is None or number >= NO_SPLIT_BUFFERS:
            message = f"{kind} does not load a model with `split: row` on CUDA: its devices have no split buffers now"
            return message, "write `split: layer`, or `split: tensor`"
        case "graph" if len(instance.on) < 2:
            return f"{kind} does not start with `split: graph` and one GPU", "leave out `split`"
        case "tensor" if instance.flash_attention == "off":
            message = f"{kind} does not start with `split: tensor` and without flash attention"
            return message, "leave out `flash_attention: off`, or write `split: layer`"
    return None


_NEAREST = {"tensor": "graph", "graph": "tensor"}
"""Split modes of two engines that both cut every layer."""


def _of_another(split: str, kind: str) -> tuple[str, str]:
    """A split mode that only another engine has."""
    if split not in _NEAREST:
        own = " or ".join(f"`split: {each}`" for each in _NEAREST if each in TRAITS[kind].splits)
        return f"{kind} has no split mode `{split}`", f"write `split: layer`, or {own}"
    theirs = next(name for name, traits in TRAITS.items() if split in traits.splits)
    message = f"`{split}` is a split mode of {theirs}, not of {kind}"
    return message, f"write `split: {_NEAREST[split]}`, or `split: layer`"


IDLE_SPLIT = Rule(
    "LH053",
    "A setting about sharing a model between GPUs does nothing.",
    why="`split` or `tensor_split` with one GPU, or `split: none` with several, of which only the first is used.",
    example="""
    instances:
      coder: {tensor_split: [1]}
    """,
    way_out="leave it out, or name more GPUs in `on`.",
    severity="warning",
)


def _without_effect(subject: RigContext, name: str, instance: Instance) -> Iterator[Finding]:
    where = ("instances", name)
    if instance.split == "none" and len(instance.on) > 1:
        message = f"with `split: none` only the first of the {len(instance.on)} GPUs of instance `{name}` is used"
        help_ = f"write `split: layer`, or `on: [{instance.on[0]}]`"
        yield IDLE_SPLIT.at(subject.document.value((*where, "split")), message, help_)
    if len(instance.on) == 1:
        for key in ("split", "tensor_split"):
            if getattr(instance, key) not in (None, (), "none"):
                message = f"`{key}` does nothing: instance `{name}` is on one GPU"
                yield IDLE_SPLIT.at(
                    subject.document.key((*where, key)),
                    message,
                    f"leave out `{key}`, or name more GPUs in `on`",
                )
