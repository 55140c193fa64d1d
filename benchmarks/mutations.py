"""Texts, bytes and documents changed at random: as a bad disk, a hasty editor or somebody hostile leaves them."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from llamaherd.inventory.yaml_text import Loader
from tests.support.hostile import EVERY

Random = random.Random
_WORDS = """!!set |!!map |!!seq |!!bool |!!int |!!float |!!binary |!!timestamp |!!pairs |!!omap |!!null |!!str
!x |&a |*a|! |<<: *a|<<: [*a, *a]|!!python/name:os |? |- |: |, |{|}|[|]|{}|[]|>-|---|...|# |#|null|~|true|-1|0|1e999
-.inf|.nan|1_000|0o7|İ|ß|²|٣٤|½|'|"|`|\\|$|${|$(|%|%h|<<END|<<'|&& |; |> |2>&1 |=|==|--|-|[Service]|[wsl2]|```|services:
rig: x|extends: x|llama-server -c |docker run -p |ExecStart=|version https://git-lfs.github.com/spec/v1|*|(|)"""
TOKENS = (
    *(word + end for word in re.split("[|\n]", _WORDS) for end in ("", "\n")),
    *("\0", "\r", "\r\n", "\n", "\t", "\x1b[2J", "\x85", "\u2028", "\ufeff", "\ud800", "\u202e", "\\\n", "|\n"),
    *("9" * 40, "9" * 5000, "0x" + "f" * 40, "x" * 9000, "(" * 300, "[" * 300, "{a: " * 99, "- " * 200, " " * 500),
)
_TEXTS = """0|-1|1e9|100%|101%|-5%|all|auto|none|b11434|main|0GB|64GB|1e400GB|300W|0W|2GHz|0:00-24:00|7:00-7:00|GPU-1
on|off|0000:01:00.0|2|²|127.0.0.1|::1|::1%1|0.0.0.0|localhost|http://x|https://[::1|file:///etc|-oProxyCommand=id|--host|.*=CPU
**/*|[a|../x|/|.|x-00001-of-99999.gguf|2026-01-01| |-ot (((((((((((a*)*)*)*)*)*)*)*)*)*)*b=CPU"""
SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0, 1e308, math.inf, math.nan, ""),
    *re.split("[|\n]", _TEXTS),
    *("9" * 30, "9" * 5000, "*" * 99, "a" * 3000 + "*.gguf", "sha256:" + "ab" * 32, "ab" * 20, "ab" * 32),
)
_NUMBERS = """²|1²|①|½|٣٤|१२|\uff13|\U0001d7d9|1\u00a0000|1'000|1_000|+1|-1|- 1|00|1.5|1,5|1e9|1e999|1e-400|
-inf|nan|Infinity|NaN|0x10|0b1|0o7|1:30|8080-|0.1.2|65536|99999|2147483648|4294967296|18446744073709551616"""
NUMBERS = (
    *re.split("[|\n]", _NUMBERS),
    *("0" * 5000 + "1", "0x" + "f" * 4000, "1." + "0" * 5000, "1" * 310 + ".5", "-" + "9" * 4301, "²" * 500),
    *("9" * digits for digits in (20, 90, 400, 4300, 4301)),
)
"""Where a number is read: what only looks like one to `isdigit`, what `int` refuses, and what fits into no float."""
MOST = 200_000
"""Characters of a text that is changed no further: each change may double it."""


def text_of(rng: Random, text: str) -> str:
    """A text with one part of it cut out, doubled, moved or replaced, or with something odd put in."""
    begin = rng.randrange(len(text) + 1)
    end = min(len(text), begin + rng.choice((0, 1, 1, 2, 5, 30, 300, 3000)))
    other = rng.randrange(len(text) + 1)
    part = rng.choice(
        (
            "",
            text[begin:end] * rng.choice((2, 3, 40)),
            text[other : other + rng.choice((1, 8, 80))],
            rng.choice(TOKENS),
            rng.choice(TOKENS) * rng.choice((1, 2, 9)),
            rng.choice(EVERY),
            text[begin:end].swapcase(),
            text[begin:end][::-1],
        )
    )
    return text[:begin] + part + text[end:]


def numbers_of(rng: Random, text: str) -> str:
    """A text of which one number, or one word, is another number."""
    found = list(re.finditer(r"[0-9]+(?:\.[0-9]+)?" if rng.random() < 0.8 else r"[\w.-]+", text))
    if not found:
        return text + rng.choice(NUMBERS)
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(NUMBERS) + text[one.end() :]


def lines_of(rng: Random, text: str) -> str:
    """A text whose lines are swapped, doubled, joined, cut, moved in or out, or have their values exchanged."""
    lines = text.split("\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(8):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            del lines[min(one, other) : max(one, other) or None]
        case 3:
            lines[one] = " " * rng.randrange(1, 9) + lines[one]
        case 4:
            lines[one] = lines[one].lstrip()
        case 5:
            lines[one] = (
                lines[one] + rng.choice(("\\", " \\ ", " #", ":", " |", " >", "\r", " &a", "  - ")) + lines[other]
            )
        case 6:
            lines[one] = (
                lines[one].rpartition(rng.choice(" :=/"))[0] + rng.choice((" ", ": ", "=")) + str(rng.choice(SCALARS))
            )
        case _:
            lines = lines * rng.choice((2, 3))
    return "\n".join(lines or [""])


def bytes_of(rng: Random, data: bytes) -> bytes:
    """Bytes of which some are flipped, set to what counts are large, cut off, doubled or moved."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        # Half of it where a file begins and ends: counts, types and names are there.
        at = rng.choice((rng.randrange(len(changed) + 1), rng.randrange(min(400, len(changed)) + 1)))
        match rng.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at : at + 8] = rng.choice((0, 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1)).to_bytes(
                    8, "little"
                )
            case 2:
                changed[at : at + 4] = rng.choice((0, 1, 8, 9, 13, 2**31, 2**32 - 1)).to_bytes(4, "little")
            case 3:
                del changed[at:]
            case 4:
                changed[at:at] = changed[at : at + rng.choice((1, 8, 500))]
            case _:
                changed[at : at + 1] = rng.randbytes(rng.choice((1, 2, 30)))
    return bytes(changed)


Parent = tuple[Any, Any]
"""A mapping or list, and the key or index of something in it."""


def parts(value: Any) -> Iterator[Parent]:
    """Where everything in a document is."""
    for key, inner in list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from parts(inner)


def hostile(rng: Random, whole: Any) -> Any:
    """A value that does not belong there: odd, huge, deep, long, or something else of the same document."""
    match rng.randrange(10):
        case 0:
            return [rng.choice(SCALARS) for _ in range(rng.choice((0, 1, 3)))]
        case 1:
            return {str(rng.choice(SCALARS)): rng.choice(SCALARS) for _ in range(rng.choice((0, 1, 3)))}
        case 2:
            deep: Any = rng.choice(SCALARS)
            for _ in range(rng.choice((3, 40, 90, 300))):
                deep = [deep] if rng.random() < 0.5 else {"a": deep}
            return deep
        case 3:
            return [rng.choice(SCALARS)] * rng.choice((100, 3000))
        case 4:
            inner, key = rng.choice(list(parts(whole)) or [([None], 0)])
            return copy.deepcopy(inner[key])
        case 5:
            return rng.choice(EVERY)
        case _:
            return rng.choice(SCALARS)


def document_of(rng: Random, data: Any) -> Any:
    """A document with leaves, parts or keys replaced, exchanged, added or left out."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        every = list(parts(data))
        if not every:
            return hostile(rng, data)
        inner, key = rng.choice(every)
        match rng.randrange(7):
            case 0:
                del inner[key]
            case 1 if isinstance(inner, dict):
                other, name = rng.choice(every)
                inner[name if isinstance(other, dict) else str(rng.choice(SCALARS))] = inner.pop(key)
            case 2 if isinstance(inner, dict):
                inner[str(rng.choice(EVERY))[:400]] = hostile(rng, data)
            case 3 if isinstance(inner, list) and len(inner) < 40:
                inner.extend(copy.deepcopy(inner) * rng.choice((1, 30)))
            case 4:
                other, name = rng.choice(every)
                inner[key] = copy.deepcopy(other[name])
            case _:
                inner[key] = hostile(rng, data)
    return data


class _Plain(yaml.CSafeDumper):
    """As people write: no aliases where the same value stands twice."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def of_yaml(rng: Random, text: str) -> str:
    """A YAML text changed by its structure: what comes out is YAML."""
    data = document_of(rng, yaml.load(text, Loader=Loader))
    if rng.random() < 0.2:
        return json.dumps(data, ensure_ascii=rng.random() < 0.5)
    return str(
        yaml.dump(data, Dumper=_Plain if rng.random() < 0.9 else yaml.CSafeDumper, allow_unicode=True, sort_keys=False)
    )


def of_json(rng: Random, text: str) -> str:
    """A JSON text changed by its structure: what comes out is JSON, but for infinities."""
    return json.dumps(document_of(rng, json.loads(text)))


Mutator = Callable[[Random, str], str]


def several(*mutators: Mutator) -> Callable[[Random, bytes], bytes]:
    """One to five changes of these kinds, one on top of the other; what fits no more is changed as text."""

    def mutate(rng: Random, data: bytes) -> bytes:
        text = data.decode()
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            if len(text) > MOST:
                break
            try:
                text = rng.choice(mutators)(rng, text)
            except (yaml.YAMLError, ValueError, TypeError, RecursionError):
                text = text_of(rng, text)
        changed = text.encode(errors="surrogatepass")
        return bytes_of(rng, changed) if rng.random() < 0.03 else changed

    return mutate
