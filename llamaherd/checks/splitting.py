"""How cards share a model: modes that an engine lacks, settings without effect."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.subject import Subject
from llamaherd.findings import Finding
from llamaherd.fleet import Engine, Instance

NO_SPLIT_BUFFERS = 9890
"""The first build of llama.cpp whose CUDA devices have none, so that `row` fails: ggml-org/llama.cpp#25884 names it,
#27465 shows CUDA's error, and b10108 has none in ggml-cuda.cu."""


def splitting(subject: Subject) -> Iterator[Finding]:
    """Split modes that do not go with the engine or the number of cards."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or engine.kind == "vllm":
            continue
        place = subject.document.value(("instances", name, "split"))
        if refused := _refused(instance, engine):
            yield Finding("LH052", place, *refused)
        else:
            yield from _without_effect(subject, name, instance)


def _refused(instance: Instance, engine: Engine) -> tuple[str, str] | None:
    """Why the server would not start with this split mode, and what to write."""
    number = engine.source.build_number if engine.source else None
    fork = engine.kind == "ik_llama.cpp"
    match instance.split:
        case "row" if fork:
            return "ik_llama.cpp has no split mode `row`", "write `split: layer`, or `split: graph`"
        case "row" if number is None or number >= NO_SPLIT_BUFFERS:
            message = "llama.cpp does not load a model with `split: row` on CUDA: its devices have no split buffers now"
            return message, "write `split: layer`, or `split: tensor`"
        case "graph" if not fork:
            return (
                "`graph` is a split mode of ik_llama.cpp, not of llama.cpp",
                "write `split: tensor`, or `split: layer`",
            )
        case "graph" if len(instance.on) < 2:
            return "ik_llama.cpp does not start with `split: graph` and one card", "leave out `split`"
        case "tensor" if fork:
            return (
                "`tensor` is a split mode of llama.cpp, not of ik_llama.cpp",
                "write `split: graph`, or `split: layer`",
            )
        case "tensor" if instance.flash_attention == "off":
            message = "llama.cpp does not start with `split: tensor` and without flash attention"
            return message, "leave out `flash_attention: off`, or write `split: layer`"
    return None


def _without_effect(subject: Subject, name: str, instance: Instance) -> Iterator[Finding]:
    where = ("instances", name)
    if instance.split == "none" and len(instance.on) > 1:
        message = f"with `split: none` only the first of the {len(instance.on)} cards of instance `{name}` is used"
        help_ = f"write `split: layer`, or `on: [{instance.on[0]}]`"
        yield Finding("LH053", subject.document.value((*where, "split")), message, help_, "warning")
    if len(instance.on) == 1:
        for key in ("split", "tensor_split"):
            if getattr(instance, key) not in (None, (), "none"):
                message = f"`{key}` does nothing: instance `{name}` is on one card"
                yield Finding(
                    "LH053",
                    subject.document.key((*where, key)),
                    message,
                    f"leave out `{key}`, or name more cards in `on`",
                    "warning",
                )
