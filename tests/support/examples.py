"""The rigs of inventory/examples, with a lock that holds headers of the real models' shapes and made-up hashes."""

from __future__ import annotations

import hashlib
from functools import cache

from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Fleet, Model
from llamaherd.lock import Lock, LockedFile, LockedImage, LockedModel, LockedRef
from llamaherd.pipeline.fleet_files import load_fleet
from llamaherd.plan import Plan
from tests.support.headers import gemma3, qwen_35b, qwen_122b
from tests.support.ours import plan
from tests.support.rigs import ROOT

EXAMPLES = ROOT / "inventory" / "examples"
SHARDS = {"UD-Q6_K_XL": 4, "UD-IQ3_S": 2}


@cache
def fleet() -> Fleet:
    """All five of them."""
    return load_fleet(EXAMPLES)


def shape(model: Model) -> Header:
    """The header of a model of this name. Of Gemma 4 there is no shape here: a Gemma 3 stands for it."""
    name, quant = str(model.hf), str(model.quant)
    if "122B" in name:
        return qwen_122b("IQ3_S" if "IQ3" in quant else "Q6_K", mtp="MTP" in name)
    if "35B" in name:
        experts, down = {
            "UD-Q4_K_XL": ("Q4_K", "Q5_K"),
            "UD-Q3_K_XL": ("Q3_K", ""),
            "UD-IQ2_XXS": ("IQ2_XXS", ""),
            "Q8_0": ("Q8_0", ""),
        }[quant]
        return qwen_35b(experts, down, mtp="MTP" in name)
    return gemma3()


def digits(text: str, count: int) -> str:
    """Hexadecimal digits that are the same for the same text."""
    return hashlib.sha256(text.encode()).hexdigest()[:count]


@cache
def locked() -> Lock:
    """What `herd lock` would make of them, as far as shapes go."""
    engines = {(e.source.git, e.source.ref) for r in fleet().rigs.values() for e in r.engines.values() if e.source}
    images = {e.image for r in fleet().rigs.values() for e in r.engines.values() if e.image}
    models = {(m.hf, m.revision, m.files): m for rig in fleet().rigs.values() for m in rig.models.values() if m.hf}
    return Lock(
        engines=tuple(LockedRef(git=str(git), ref=str(ref), commit=digits(f"{git}{ref}", 40)) for git, ref in engines),
        images=tuple(LockedImage(image=image, digest=f"sha256:{digits(image, 64)}") for image in images),
        models=tuple(map(_model, models.values())),
    )


def _model(model: Model) -> LockedModel:
    header = shape(model)
    count = SHARDS.get(str(model.quant), 1) if "122B" in str(model.hf) else 1
    stem = f"{str(model.hf).partition('/')[2].removesuffix('-GGUF')}-{model.quant}"
    names = [f"{stem}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)] if count > 1 else [f"{stem}.gguf"]
    size = sum(tensor.bytes for tensor in header.each) + (11 << 20)
    return LockedModel(
        repo=str(model.hf),
        revision=model.revision,
        files=model.files,
        commit=digits(stem, 40),
        endpoint="https://hub.lan",
        shards=tuple(LockedFile(path=name, size=size // count, sha256=digits(name, 64)) for name in names),
        header=header,
    )


def planned(rig: str) -> Plan:
    """The plan of one of them."""
    return plan(fleet().rigs[rig], locked(), fleet().rigs)
