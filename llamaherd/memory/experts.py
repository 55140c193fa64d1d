"""Routed experts on the CPU: which layers' experts, and the pattern for `-ot` that matches exactly them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from llamaherd.gguf.header import Header


@lru_cache(maxsize=256)
def moe_layers(header: Header) -> tuple[int, ...]:
    """Layers with routed experts, prediction heads left out."""
    found = {tensor.layer for tensor in header.each if tensor.is_expert and tensor.layer is not None}
    return tuple(sorted(layer for layer in found if layer < header.trunk))


def layers_on_cpu(header: Header, share: str | int) -> tuple[int, ...]:
    """The layers whose experts go to the CPU: the first ones, as `--n-cpu-moe` takes them (common/arg.cpp).

    `share` is a number of layers or a part of the model's layers with experts, `75%`, rounded to whole layers.
    Raises ValueError, with a sentence.
    """
    known = moe_layers(header)
    if not known:
        raise ValueError("the model has no routed experts")
    match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,4})?)\s*(%?)\s*", str(share), re.ASCII)
    if not match or (not match[2] and "." in match[1]):
        raise ValueError(f"`{share}` is neither a number of layers nor a part like 75%")
    wanted = len(known) * float(match[1]) / 100 if match[2] else int(match[1])
    if wanted > len(known):
        raise ValueError(f"`{share}` is more than the {len(known)} layers with experts that the model has")
    return known[: int(wanted + 0.5)]


def pattern(header: Header, layers: Iterable[int]) -> str:
    r"""What matches the names of these layers' experts, and of nothing else.

    Like `blk\.(?:[0-9]|1[0-7])\.ffn_(?:down|gate|up)_exps\.weight`. The engine searches each tensor's name with it
    (ECMAScript, llama-model-loader.cpp:1237) and cuts its arguments at `,`, so that there is none.
    Raises ValueError if a layer has no experts, or if a tensor is missed or hit by mistake.
    """
    return _pattern(header, tuple(sorted(set(layers))))


@lru_cache(maxsize=1024)
def _pattern(header: Header, wanted: tuple[int, ...]) -> str:
    experts = {tensor.name: tensor.layer for tensor in header.each if tensor.is_expert}
    bare = [layer for layer in wanted if layer not in experts.values()]
    if bare or not wanted:
        raise ValueError(f"layer {bare[0]} has no routed experts" if bare else "no layers are named")
    names = {name.split(".", 2)[2] for name, layer in experts.items() if layer in wanted}
    found = rf"blk\.(?:{_numbers(wanted)})\.{_names(names)}"
    hit = {tensor.name for tensor in header.each if re.search(found, tensor.name)}
    meant = {name for name, layer in experts.items() if layer in wanted}
    if hit != meant:
        raise ValueError(f"`{found}` does not match exactly the experts meant: {', '.join(sorted(hit ^ meant)[:3])}")
    return found


def _names(names: Iterable[str]) -> str:
    r"""The tensors' names within their layer: `ffn_(?:down|gate|up)_exps\.weight`."""
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        kind, found, rest = name.removeprefix("ffn_").partition(
            next(end for end in ("_exps", "_chexps") if end in name)
        )
        parts[found + rest].append(kind)
    return _either([rf"ffn_{_either(kinds)}{re.escape(rest)}" for rest, kinds in parts.items()])


def _either(ways: list[str]) -> str:
    """One of several, or the only one."""
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers as alternatives, tens with the same last digits together: `[0-9]|[12][0-9]|3[0-5]`."""
    units: defaultdict[str, list[int]] = defaultdict(list)
    for number in numbers:
        units[str(number)[:-1]].append(number % 10)
    tens: defaultdict[str, list[str]] = defaultdict(list)
    for front, digits in units.items():
        tens[_digits(digits)].append(front)
    found = []
    for last, fronts in tens.items():
        single = [int(front) for front in fronts if len(front) == 1]
        found += [front + last for front in fronts if len(front) != 1]
        found += [_digits(single) + last] if single else []
    return "|".join(found)


def _digits(digits: list[int]) -> str:
    """Digits as a class: `[0-5]`, `[137]`, or one alone."""
    runs: list[list[int]] = []
    for digit in sorted(digits):
        if runs and digit == runs[-1][1] + 1:
            runs[-1][1] = digit
        else:
            runs.append([digit, digit])
    inside = "".join(
        str(first) if first == last else f"{first}{last}" if last == first + 1 else f"{first}-{last}"
        for first, last in runs
    )
    return inside if len(inside) == 1 else f"[{inside}]"
