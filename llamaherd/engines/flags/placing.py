"""Options that say where a model goes: layers, GPUs, shares, and the engine's own fitting."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.meant import Meant, Option
from llamaherd.engines.flags.values import NO_CHOICE
from llamaherd.engines.flags.visible import visible

LAYERS, EXPERTS = ("--gpu-layers", "--n-gpu-layers"), ("--override-tensor", "--cpu-moe", "--n-cpu-moe")
OFF = ("off", "0", "false", "disabled")


def attention_off(meant: Meant) -> Option | None:
    option = meant.get("--flash-attn")
    return option if option and option.value.lower() in OFF else None


NO_FIT = Rule(
    "LH057",
    "The engine must fit the model to the GPU by itself, and something is placed by hand.",
    why="""
    llama.cpp fits nothing where layers, experts or shares are given (a note); ik_llama.cpp does not start with
    `--fit` beside placed tensors (an error).
    """,
    example="""
    instances:
      coder: {gpu_layers: 30, extra_args: [--fit, "on"]}
    """,
    way_out="leave out one of the two. `herd plan` works out what fits.",
    sometimes=("note",),
)


def idle_fit(meant: Meant, _around: Around) -> Iterator[Clash]:
    """llama.cpp b11434, common/fit.cpp:183; ik_llama.cpp 8337e4cd3, src/llama.cpp:4281-4286."""
    fit = meant.get("--fit")
    if fit is None or fit.value.lower() in OFF:
        return
    fork = meant.catalogue.kind == "ik_llama.cpp"
    names = EXPERTS if fork else (*EXPERTS, *LAYERS, "--tensor-split")
    placed = [option for name in names if (option := meant.get(name)) and option.value not in ("auto", "-1")]
    if placed and fork:
        message = f"ik_llama.cpp does not start with {fit} beside {placed[0]}"
        yield Clash(NO_FIT, (fit, placed[0]), message, "leave out one of the two")
    elif placed:
        message = f"llama.cpp fits nothing where something is placed by hand, and here {placed[0]} does so"
        yield Clash(NO_FIT, (fit, placed[0]), message, f"leave out {fit}, or {placed[0]}", "note")


NO_SPLIT = Rule(
    "LH052",
    "The engine does not start with this split mode.",
    why="""
    llama.cpp has `layer`, `tensor` and `none`; its `row` fails to load on CUDA since b9890. ik_llama.cpp has
    `layer`, `graph` and `none`; `graph` needs two GPUs. `tensor` needs flash attention.
    """,
    example="""
    instances:
      coder: {split: row}
    """,
    way_out="write `split: layer`, which every engine and model takes. The help line names the fast one of the engine.",
)


def idle_split(meant: Meant, around: Around) -> Iterator[Clash]:
    split = meant.get("--split-mode")
    if split is None:
        return
    cards = visible(meant, around)
    if split.value in ("graph", "attn") and meant.catalogue.kind == "ik_llama.cpp" and cards == 1:
        message = f"ik_llama.cpp does not start with {split} and one GPU"
        yield Clash(NO_SPLIT, (split,), message, f"leave out {split}")
    attention = attention_off(meant)
    if split.value == "tensor" and attention:
        message = f"llama.cpp does not start with {split} and without flash attention"
        yield Clash(NO_SPLIT, (split, attention), message, f"leave out {attention}, or write `--split-mode layer`")


TOO_MANY = Rule(
    "LH220",
    "More GPUs or slots are asked for than there are.",
    why="What CUDA_VISIBLE_DEVICES or `on` leaves is counted from 0. llama.cpp serves 256 slots at most.",
    example="""
    CUDA_VISIBLE_DEVICES=0 llama-server -m model.gguf -c 8192 -mg 1
    """,
    language="sh",
    way_out="name GPUs that are there, or fewer slots.",
    sometimes=("warning",),
)


def shares(meant: Meant, around: Around) -> Iterator[Clash]:
    """A share for each GPU, and a main GPU that is there and counts."""
    cards, shares = visible(meant, around), meant.get("--tensor-split")
    parts = [part for part in shares.value.replace("/", ",").split(",") if part] if shares else []
    if shares and cards is not None and len(parts) > max(1, cards):
        message = f"{shares} has {len(parts)} shares, and the server sees {_counted(cards, 'GPU')}"
        yield Clash(TOO_MANY, (shares,), message, "give a share to each GPU that it sees", "warning")
    main = meant.get("--main-gpu")
    if main and cards is not None and meant.number("--main-gpu", default=0) >= max(1, cards):
        message = f"{main} names a GPU that is not there: the server sees {_counted(cards, 'GPU')}, counted from 0"
        yield Clash(TOO_MANY, (main,), message, f"leave out {main}")


def _counted(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s" if number else f"no {what}"


NEGATIVE_LAYERS = Rule(
    "LH259",
    "A number of layers is negative, and each engine takes that for something else.",
    why="""
    llama.cpp takes -1 for `auto`, and what is below for `all`. ik_llama.cpp takes -1 for its default, and puts no
    layer on a GPU below that.
    """,
    example="""
    llama-server -m model.gguf -ngl -1
    """,
    language="sh",
    way_out="write `-ngl all`, or 999 for ik_llama.cpp.",
    sometimes=(
        "warning",
        "note",
    ),
)


def layer_counts(meant: Meant, _around: Around) -> Iterator[Clash]:
    """Numbers below zero (llama.cpp b11434, common/arg.cpp:2795-2800, src/llama-model.cpp:2010; ik_llama.cpp
    67268c8fd, common/common.cpp:3425, src/llama.cpp:2325: below -1 all layers stay in RAM)."""
    option = meant.get(*LAYERS)
    number = meant.number(*LAYERS, default=0)
    if option is None or number >= 0:
        return
    if meant.catalogue.kind == "llama.cpp":
        what = "as many layers as fit, as `auto` does" if number == -1 else "all layers, as `all` does"
        message = f"{option} puts {what}, and other programs take it for something else"
        help_ = f"write `{option.words[0]} all` for all of them, or a number from 0 on"
        yield Clash(NEGATIVE_LAYERS, (option,), message, help_, "note")
    elif number < -1:
        message = f"{option} puts no layer on a card: ik_llama.cpp counts them off from the end"
        yield Clash(NEGATIVE_LAYERS, (option,), message, f"write `{option.words[0]} 999` for all of them")
    else:
        message = f"{option} leaves the number of layers to the version: older ones put none on a GPU"
        help_ = f"write `{option.words[0]} 999` for all of them"
        yield Clash(NEGATIVE_LAYERS, (option,), message, help_, "warning")


def devices(meant: Meant, around: Around) -> Iterator[Clash]:
    """Devices by their names (llama.cpp b11434, common/arg.cpp:1122-1142, ggml_backend_dev_by_name)."""
    for name in ("--device", "--spec-draft-device", "--device-draft"):
        option = meant.get(name)
        names = [each.strip() for each in option.value.split(",")] if option else []
        if option and names and all(re.fullmatch(r"[0-9]{1,3}", each) for each in names):
            instead = ",".join(f"CUDA{each}" for each in names)
            message = f"{option} names no device: they have names, as `--list-devices` shows them"
            yield Clash(NO_CHOICE, (option,), message, f"write `{option.words[0]} {instead}`")
            return
        cards = visible(meant, around)
        numbers = [int(found[1]) for each in names if (found := re.fullmatch(r"CUDA([0-9]{1,3})", each))]
        if option and cards is not None and any(number >= cards for number in numbers):
            message = f"{option} names a GPU that is not there: the server sees {_counted(cards, 'GPU')}, from CUDA0 on"
            yield Clash(TOO_MANY, (option,), message, f"leave out {option}")
            return
