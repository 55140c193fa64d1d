"""Options that say where a model goes: layers, cards, shares, and the engine's own fitting."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.engines.flags import codes
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.meant import Meant, Option
from llamaherd.engines.flags.visible import visible

LAYERS, EXPERTS = ("--gpu-layers", "--n-gpu-layers"), ("--override-tensor", "--cpu-moe", "--n-cpu-moe")
OFF = ("off", "0", "false", "disabled")


def attention_off(meant: Meant) -> Option | None:
    option = meant.get("--flash-attn")
    return option if option and option.value.lower() in OFF else None


def fit(meant: Meant, _around: Around) -> Iterator[Clash]:
    """llama.cpp b11434, common/fit.cpp:183; ik_llama.cpp 8337e4cd3, src/llama.cpp:4281-4286."""
    fit = meant.get("--fit")
    if fit is None or fit.value.lower() in OFF:
        return
    fork = meant.catalogue.kind == "ik_llama.cpp"
    names = EXPERTS if fork else (*EXPERTS, *LAYERS, "--tensor-split")
    placed = [option for name in names if (option := meant.get(name)) and option.value not in ("auto", "-1")]
    if placed and fork:
        message = f"ik_llama.cpp does not start with {fit} beside {placed[0]}"
        yield Clash(codes.NO_FIT, (fit, placed[0]), message, "leave out one of the two")
    elif placed:
        message = f"llama.cpp fits nothing where something is placed by hand, and here {placed[0]} does so"
        yield Clash(codes.NO_FIT, (fit, placed[0]), message, f"leave out {fit}, or {placed[0]}", "note")


def split(meant: Meant, around: Around) -> Iterator[Clash]:
    split = meant.get("--split-mode")
    if split is None:
        return
    cards = visible(meant, around)
    if split.value in ("graph", "attn") and meant.catalogue.kind == "ik_llama.cpp" and cards == 1:
        message = f"ik_llama.cpp does not start with {split} and one card"
        yield Clash(codes.NO_SPLIT, (split,), message, f"leave out {split}")
    attention = attention_off(meant)
    if split.value == "tensor" and attention:
        message = f"llama.cpp does not start with {split} and without flash attention"
        yield Clash(
            codes.NO_SPLIT, (split, attention), message, f"leave out {attention}, or write `--split-mode layer`"
        )


def shares(meant: Meant, around: Around) -> Iterator[Clash]:
    """A share for each card, and a main card that is there and counts."""
    cards, shares = visible(meant, around), meant.get("--tensor-split")
    parts = [part for part in shares.value.replace("/", ",").split(",") if part] if shares else []
    if shares and cards is not None and len(parts) > max(1, cards):
        message = f"{shares} has {len(parts)} shares, and the server sees {_counted(cards, 'card')}"
        yield Clash(codes.TOO_MANY, (shares,), message, "give a share to each card that it sees", "warning")
    main = meant.get("--main-gpu")
    if main and cards is not None and meant.number("--main-gpu", default=0) >= max(1, cards):
        message = f"{main} names a card that is not there: the server sees {_counted(cards, 'card')}, counted from 0"
        yield Clash(codes.TOO_MANY, (main,), message, f"leave out {main}")


def _counted(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s" if number else f"no {what}"


def layers(meant: Meant, _around: Around) -> Iterator[Clash]:
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
        yield Clash(codes.NEGATIVE_LAYERS, (option,), message, help_, "note")
    elif number < -1:
        message = f"{option} puts no layer on a card: ik_llama.cpp counts them off from the end"
        yield Clash(codes.NEGATIVE_LAYERS, (option,), message, f"write `{option.words[0]} 999` for all of them")
    else:
        message = f"{option} leaves the number of layers to the version: older ones put none on a card"
        help_ = f"write `{option.words[0]} 999` for all of them"
        yield Clash(codes.NEGATIVE_LAYERS, (option,), message, help_, "warning")


def devices(meant: Meant, around: Around) -> Iterator[Clash]:
    """Devices by their names (llama.cpp b11434, common/arg.cpp:1122-1142, ggml_backend_dev_by_name)."""
    for name in ("--device", "--spec-draft-device", "--device-draft"):
        option = meant.get(name)
        names = [each.strip() for each in option.value.split(",")] if option else []
        if option and names and all(re.fullmatch(r"[0-9]{1,3}", each) for each in names):
            instead = ",".join(f"CUDA{each}" for each in names)
            message = f"{option} names no device: they have names, as `--list-devices` shows them"
            yield Clash(codes.NO_CHOICE, (option,), message, f"write `{option.words[0]} {instead}`")
            return
        cards = visible(meant, around)
        numbers = [int(found[1]) for each in names if (found := re.fullmatch(r"CUDA([0-9]{1,3})", each))]
        if option and cards is not None and any(number >= cards for number in numbers):
            message = (
                f"{option} names a card that is not there: the server sees {_counted(cards, 'card')}, from CUDA0 on"
            )
            yield Clash(codes.TOO_MANY, (option,), message, f"leave out {option}")
            return
