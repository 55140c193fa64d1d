"""Names of files on a hub and of images in a registry that are surely none: asked there, they would only be missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.checks.images import LLAMA_CPP, untagged
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.near import near
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import served_whole
from llamaherd.inventory.repairs import bits
from llamaherd.inventory.schema import Model
from llamaherd.reference.images import exists, same_tag
from llamaherd.text.quoting import yaml_value

_PLAIN = """
F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K MXFP4 MXFP4_MOE TQ1_0 TQ2_0
Q2_K_S Q2_K_L Q3_K_S Q3_K_M Q3_K_L Q3_K_XL Q4_K_S Q4_K_M Q4_K_L Q5_K_S Q5_K_M Q5_K_L Q6_K_L
IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_XS IQ4_NL
IQ2_K IQ3_K IQ4_K IQ5_K IQ6_K IQ2_KS IQ3_KS IQ4_KS IQ5_KS IQ4_KSS IQ1_KT IQ2_KT IQ3_KT IQ4_KT IQ2_KL
"""
"""The names of mixes: llama.cpp's (b11434, tools/quantize/quantize.cpp), ik_llama.cpp's, and bartowski's."""
_UNSLOTH = """
Q2_K_XL Q3_K_XL Q4_K_XL Q5_K_XL Q6_K_XL Q8_K_XL TQ1_0 IQ1_S IQ1_M IQ2_XXS IQ2_M IQ3_XXS IQ3_S IQ4_XS
"""
"""Those that have `UD-` in front of them in its repositories."""
QUANTS = (*_PLAIN.split(), *(f"UD-{name}" for name in _UNSLOTH.split()))


NO_FILE = Rule(
    "LH250",
    "No file of a model is called so.",
    why="""
    The hub would find nothing when `herd lock` asks. A quant is written as in names of files, and a pattern ends
    in `.gguf`.
    """,
    example="""
    models:
      35b: {quant: UD_Q3_K_XL}
    """,
    after="""
    A pattern that can match nothing is an error. A quant that is nearly one that is known is a warning, and so is
    `quant` beside `files`, which then decides alone.
    """,
    way_out="write the quant that the help line names. The repository's page shows its files.",
    sometimes=("warning",),
)


def files(subject: RigContext) -> Iterator[Finding]:
    """Quants and patterns of files that nothing is called."""
    rig = subject.rig
    in_folders = served_whole(rig)
    for name, model in rig.models.items():
        if model.hf is None or name in in_folders:
            continue
        declared = subject.document.data.get("models", {}).get(name)
        if isinstance(declared, dict) and declared.keys() >= {"quant", "files"}:
            place = subject.document.key(("models", name, "quant"))
            yield NO_FILE.at(
                place, "`files` says which files, and `quant` does nothing", "leave `quant` out", "warning"
            )
        elif model.quant and (help_ := _other_quant(model.quant)):
            message = f"`{model.quant}` is no quant that is known"
            yield NO_FILE.at(subject.document.value(("models", name, "quant")), message, help_, "warning")
        elif not model.quant and (found := _no_pattern(model)):
            yield NO_FILE.at(subject.document.value(("models", name, "files")), *found)


def _other_quant(quant: str) -> str | None:
    """What to write for a quant that is none; None for one that there is, or that may be."""
    if quant.removesuffix(".gguf").upper() in QUANTS and quant.endswith(".gguf"):
        return f"did you mean `quant: {quant.removesuffix('.gguf')}`?"
    if quant.endswith(".gguf"):
        return f"write `files: {yaml_value(quant)}` in its place: `quant` is a part of a file's name"
    if quant.upper() in QUANTS:
        return None
    if meant := bits(quant):
        return f"did you mean `quant: {meant}`? Files are named by how they are quantised, and not by bits"
    close = near(quant, (known for known in QUANTS if re.findall(r"\d", known) == re.findall(r"\d", quant)))
    joined = [known for known in QUANTS if _bare(known) == _bare(quant)]
    meant = joined[0] if len(joined) == 1 else close
    return f"did you mean `quant: {meant}`?" if meant else None


def _bare(quant: str) -> str:
    return re.sub(r"[^a-z0-9]", "", quant.lower())


def _no_pattern(model: Model) -> tuple[str, str] | None:
    """Why a pattern matches no file of a repository, and what to write."""
    files = model.files
    if files.startswith(("/", "~")):
        message = f"`{files}` is a path of a machine, and `files` are those of the repository"
        return message, f"write the name alone, `files: {yaml_value(files.rpartition('/')[2])}`"
    if re.search(r"[*?\[]", files) and re.search(r"[A-Za-z0-9]$", files) and not files.endswith(".gguf"):
        message = f"no GGUF file matches `{files}`: their names end with `.gguf`"
        return message, f"did you mean `files: {yaml_value(f'{files}*.gguf')}`?"
    if re.search(r"[*?\[]", files) or files.endswith(".gguf"):
        return None
    message = f"no GGUF file is called `{files}`"
    if files.upper() in QUANTS or _other_quant(files):
        return message, f"did you mean `quant: {files}`?"
    return message, f"write `files: {yaml_value(f'{files}.gguf')}` for one, or `files: {yaml_value(f'*{files}*.gguf')}`"


NO_TAG = Rule(
    "LH252",
    "There is no image with this tag.",
    why="""
    llama.cpp publishes `full`, `light` and `server` images, each with the kind of GPU behind it, and none by
    other names.
    """,
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:server-cublas-b11434"}
    instances:
      helper: {engine: pulled, backend: compose}
    """,
    way_out="write the tag that the help line names, such as `server-cuda`.",
    severity="warning",
)


def tags(subject: RigContext) -> Iterator[Finding]:
    """Tags of images that nothing is called."""
    for name, engine in subject.rig.engines.items():
        tag = re.search(r":([^:/@]+)$", (engine.image or "").split("@")[0])
        if engine.image and tag and untagged(engine.image) == LLAMA_CPP and not exists(tag[1]):
            message = f"`{LLAMA_CPP}` has no tag `{tag[1]}`"
            help_ = f"did you mean `image: {LLAMA_CPP}:{same_tag(tag[1])}`?"
            yield NO_TAG.at(subject.document.value(("engines", name, "image")), message, help_)
