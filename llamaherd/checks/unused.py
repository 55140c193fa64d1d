"""What is declared and not used."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.yamlfile import Path_


def unused(subject: RigContext) -> Iterator[Finding]:
    """Engines, models and GPUs that no instance uses; what other files lend to this rig may well be for others."""
    rig = subject.rig
    cards = rig.gpus.cards if rig.gpus else {}
    instances = rig.instances.values()
    yield from _unused(subject, "engine", ("engines",), rig.engines, {each.engine for each in instances})
    yield from _unused(subject, "model", ("models",), rig.models, rig.used_models)
    yield from _unused(subject, "GPU", ("gpus", "cards"), cards, {name for each in instances for name in each.on})


UNUSED = Rule(
    "LH075",
    "An engine, a model or a GPU is declared, and no instance uses it.",
    why="Only what is used comes to a host.",
    example="""
    models:
      big: {hf: unsloth/Qwen3.5-122B-A10B-GGUF, quant: UD-Q6_K_XL}
    """,
    way_out="""
    name it in an instance, or take it out. What a rig inherits from `defaults.yaml` or another rig is not
    counted.
    """,
    severity="warning",
)


def _unused(
    subject: RigContext, what: str, where: Path_, declared: Collection[str], used: Collection[str]
) -> Iterator[Finding]:
    if set(used) - set(declared):
        return  # a name is misspelt, which is a finding of its own, and the one that was meant seems unused
    for name in declared:
        place = subject.document.key((*where, name))
        if name not in used and place.file == subject.document.file:
            message = f"no instance uses {what} `{name}`"
            yield UNUSED.at(place, message, f"name it in an instance, or take {what} `{name}` out")
