"""What rigs that are alike have in common, as a search writes it down for those who know only a part of it. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from llamaherd.bench.results.provenance import Count, Recorded
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig

Identity = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class LikeGpu(Recorded):
    """A GPU, as far as another one is like it."""

    model: str
    memory_bytes: Count | None = None


class Likeness(Recorded):
    """What a rig and an instance have that others may have too. `header` is the digest of the model's header."""

    engine: str
    model: str
    header: Identity | None = None
    gpus: tuple[LikeGpu, ...] = ()
    cores: Count
    context: Count
    parallel: Count


def likeness_of(rig: Rig, name: str, header: Header | None) -> Likeness:
    """That of an instance of a rig."""
    instance = rig.instances[name]
    model = rig.models[instance.model]
    cards = rig.gpus.cards if rig.gpus else {}
    return Likeness(
        engine=rig.engines[instance.engine].kind,
        model=f"{model.hf} {model.quant or model.files}" if model.hf else instance.model,
        header=header.digest if header else None,
        gpus=tuple(LikeGpu(model=cards[each].model, memory_bytes=cards[each].memory_bytes) for each in instance.on),
        cores=rig.host.cpu.cores,
        context=instance.context,
        parallel=instance.parallel,
    )
