"""Suggest the name or value that a wrong one was probably meant to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llamaherd.diagnostics.findings import nearest
from llamaherd.diagnostics.spelling import completed_name, misspelled_name, nearest_name, notation, one_slip
from llamaherd.inventory.schema.base import windows_path
from llamaherd.reference.cards import known_as
from llamaherd.text.numbers import whole_number

DECLARED_UNDER: Mapping[str, tuple[str, ...]] = {
    "engine": ("engines",),
    "model": ("models",),
    "card": ("gpus", "cards"),
}
"""The key under which each kind is declared."""
_IDENTIFYING_KEYS: Mapping[str, tuple[str, ...]] = {
    "engine": ("kind", "ref", "release", "image"),
    "model": ("hf", "file", "quant"),
    "card": ("model", "uuid", "pci", "index"),
}
"""The keys whose values users write instead of the name."""
_LONGEST = 300
"""The most characters of a word that is compared with names: longer ones take too long."""


def declared_items(data: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return what a rig's YAML declares of a kind, by name; nothing if it is unreadable."""
    found: Any = data
    for key in DECLARED_UNDER[what]:
        found = found.get(key) if isinstance(found, Mapping) else None
    return {str(name): each for name, each in found.items()} if isinstance(found, Mapping) else {}


def intended_name(data: Mapping[str, Any], what: str, word: str) -> str | None:
    """Return the name that was clearly meant: misspelt, or given by a value of the declaration."""
    if len(word) > _LONGEST:
        return None
    declared = declared_items(data, what)
    word = word.strip(_QUOTES)
    if word in declared:
        return word
    if close := misspelled_name(word, declared) or completed_name(word, declared):
        return close
    identified = [name for name, each in declared.items() if _is_identified(each, what, word)]
    return identified[0] if len(identified) == 1 else None


def suggest_name(data: Mapping[str, Any], what: str, word: str) -> str:
    """Return the suggestion for an undeclared name: the nearest name as a question, or all names."""
    if meant := intended_name(data, what, word):
        return f"did you mean `{meant}`?"
    if what == "model" and (source := _model_source(word)):
        name = re.sub(r"[^a-z0-9.]+", "-", source[0].lower()).strip("-.")[:_MOST_NAME]
        return f"declare it under `models`, as in `{name}: {source[1]}`, and write `model: {name}` here"
    names = declared_items(data, what)
    if not names:
        example = {
            "card": "under `gpus`, as in `cards: {main: {model: RTX 3090}}`",
            "engine": "under `engines`, as in `main: {kind: llama.cpp, ref: b11434}`",
            "model": "under `models`, as in `small: {hf: bartowski/google_gemma-3-4b-it-GGUF, quant: Q4_K_M}`",
        }[what]
        return f"declare it {example}"
    return nearest("", names)


_MOST_NAME = 40


def _model_source(word: str) -> tuple[str, str] | None:
    """Return a name for a model that is written as a file or as OWNER/NAME:QUANT, and its declaration; else None."""
    if file := re.fullmatch(r"(?:[~.]*/)?(?:[\w. -]+/)*([\w. -]+)\.gguf", word):
        return file[1], f"{{file: {word}}}"
    if hub := re.fullmatch(r"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?([\w.-]+/([\w.-]+?))(?::([\w-]+))?", word):
        return hub[2].removesuffix("-GGUF"), f"{{hf: {hub[1]}, quant: {hub[3] or 'Q4_K_M'}}}"
    return None


def _is_identified(declared: Any, what: str, word: str) -> bool:
    values = [declared.get(key) for key in _IDENTIFYING_KEYS[what]] if isinstance(declared, Mapping) else []
    plain = _plain(word)
    if what == "card" and (card := known_as(word)):
        return bool(values) and known_as(str(values[0])) == card
    return any(
        plain in (_plain(str(value)), _plain(str(value).rpartition("/")[2])) for value in values if value is not None
    )


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "-", word.strip().lower()).removesuffix("-gguf")


LONGEST_VALUE = 200
"""The most characters of a value with a suggestion: longer ones are no typing mistakes."""
_QUOTES = "\"'\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb"
_SIZE = re.compile(
    r"(\d+(?:[.,]\d+)?) ?([kmgt])(i?)(?:b|o|(?:igab|egab|erab|ilob|bib|b)ytes?|gs?|igs?|s)?\b.*", re.IGNORECASE
)
_KILO = re.compile(r"(\d{1,6}) ?(k|m)(?:i|ib|b)?", re.IGNORECASE)
_ADDRESS = r"(?:[\w-]*\.[\w.-]*|[a-z][\w-]*)"
_DECIMAL = re.compile(r"(\d+(?:[.,]\d+)?) ?(%?)")


def candidate_values(field: str, given: Any) -> Iterator[Any]:
    """Yield what a value of a field such as `Host.ram` may mean, the likeliest first."""
    if isinstance(given, list):
        yield from _of_list(field, given)
    if isinstance(given, dict) and field == "Instance.extra_args":
        yield from _of_list(field, [each for pair in given.items() for each in pair])
    if not isinstance(given, str | int | float) or len(str(given)) > LONGEST_VALUE:
        return
    ascii_digits = re.sub(r"\d", lambda digit: str(int(digit[0])), str(given))  # `\d` matches digits of every script
    text = re.sub(r"\s+(?:#|//).*|(?<=\d)#.*", "", ascii_digits).strip(_QUOTES + " \t\u00a0").rstrip(";,")
    if special := _BY_FIELD.get(field):
        yield from special(text)
    if isinstance(given, bool):
        yield from _SWITCHED.get(field, ((), ()))[given]
        return
    if number := [found] if (found := whole_number(text)) is not None else []:
        yield from (number[0], number)
    yield from (text, text.lower())
    if field in ("Rig.rig", "Host.os"):
        yield re.sub(r"[ _]+", "-", text.lower())
    if field in ("Engine.options", "Instance.environment"):
        yield from _of_list(field, text.split())
    if field.endswith(".port") and (
        port := re.fullmatch(rf"(?:\w+://)?(?:{_ADDRESS}?:)?(\d{{1,5}})(?:[:-]\d{{1,5}})?(?:/.*)?", text, re.ASCII)
    ):
        yield int(port[1])
    if re.fullmatch(r"0o[0-7]{1,16}", text, re.IGNORECASE):
        yield int(text, 8)
    if windows := windows_path(text):
        yield windows
    if re.fullmatch(r"(?=.*\d)[\dOolI]{2,}", text):
        yield int(text.translate(_LETTERS))
    if switch := one_slip(text.lower(), ("true", "false")):
        yield switch == "true"
    if text.lower() in _WORDS:
        yield from ("on", True) if _WORDS[text.lower()] else ("off", False)
    if not (field.startswith("Expect.") and re.search(r"\d ?m?s", text)):  # how long one takes is no speed
        yield from _numbers(text, part=field in _PARTS)
    if not re.search(r"[\s'\"-]", text):
        yield [text]


_LETTERS = str.maketrans({"O": "0", "o": "0", "l": "1", "I": "1"})
"""Letters that resemble digits."""


def _of_list(field: str, given: list[Any]) -> Iterator[Any]:
    """Yield what a list may mean: a mapping, a joined text, a single value, a list of texts."""
    texts = [str(each) for each in given if isinstance(each, str | int | float) and not isinstance(each, bool)]
    if not texts or len(texts) < len(given) or len(texts) > 20:
        return
    if field == "Instance.kv" and len(texts) == 2:
        yield {"k": texts[0], "v": texts[1]}
    if field in ("Engine.options", "Instance.environment"):
        pairs = [re.sub(r"^-D", "", text).partition("=") for text in texts]
        yield {name: value for name, _, value in pairs if value}
    if field == "Instance.cpus":
        yield ",".join(texts)
    if field == "Bandwidth.hours" and len(texts) == 2:
        yield "-".join(texts)
    if len(texts) == 1:
        yield from (given[0], texts[0])
    yield texts


def is_same_value(given: Any, candidate: Any) -> bool:
    """Return whether a candidate is certainly what a value means: another notation, or a list of one value."""
    if isinstance(candidate, list) and len(candidate) == 1:
        candidate = candidate[0]
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if not isinstance(given, str | int | float) or not isinstance(candidate, str | int | float):
        return False
    if isinstance(candidate, bool) and one_slip(str(given).lower(), ("true", "false")) == str(candidate).lower():
        return True
    switches = (_SWITCHES.get(str(given).lower()), _SWITCHES.get(str(candidate).lower()))
    if None not in switches:
        return switches[0] == switches[1]
    one, other = notation(str(given)), notation(str(candidate))
    return one == other or (bool(re.fullmatch(r"\d+[kmgt]i?", one)) and f"{one}b" == other)


_WORDS = dict.fromkeys(("yes", "y", "enabled", "always", "true"), True)
_WORDS |= dict.fromkeys(("no", "n", "disabled", "never", "false"), False)
_SWITCHES = _WORDS | {"on": True, "off": False}
_PARTS = frozenset(("Draft.p_min", "Sampling.top_p", "Sampling.min_p"))
"""Fields between 0 and 1, which users write in percent."""
_SWITCHED: Mapping[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "Instance.flash_attention": (("off",), ("on",)),
    "Instance.gpu_layers": ((0,), ("all",)),
    "Instance.experts_on_cpu": ((0,), ("all",)),
    "Instance.environment": (("0",), ("1",)),
}
"""The words for false and true in fields that accept neither."""


def _numbers(text: str, *, part: bool) -> Iterator[int | float]:
    """Yield numbers in other notations: `8k`, `8,192`, `600s`, `0,7`, `75%`, `8192 tokens`."""
    if kilo := _KILO.fullmatch(text):
        yield int(kilo[1]) * (1024 if kilo[2].lower() == "k" else 1024**2)
    if re.fullmatch(r"\d{1,3}(?:[., _]\d{3})+", text):
        yield int(re.sub(r"\D", "", text))
    if decimal := _DECIMAL.fullmatch(text):
        number = float(decimal[1].replace(",", "."))
        if "," in text:
            yield number
        if part:
            yield number / 100
    if worded := re.fullmatch(r"(-?\d{1,9}) ?[a-z]+", text, re.IGNORECASE):
        yield int(worded[1])


def _size(text: str) -> Iterator[str]:
    if match := _SIZE.fullmatch(text):
        yield f"{match[1].replace(',', '.')}{match[2].upper()}{match[3].lower()}B"
    elif re.fullmatch(r"\d{1,4}(?:[.,]\d)?", text):
        yield f"{text.replace(',', '.')}GB"
    elif re.fullmatch(r"\d{5,7}", text):
        yield f"{text}MiB"


def _scaled(unit: str, kilo: str) -> Callable[[str], Iterator[str]]:
    """Return a function that yields a quantity in its unit, also from a thousand of it."""

    def read(text: str) -> Iterator[str]:
        match = re.fullmatch(r"(\d+(?:[.,]\d+)?) ?([a-z]*)", text, re.IGNORECASE)
        if not match:
            return
        number, written = float(match[1].replace(",", ".")), match[2].lower()
        if written == kilo:
            yield f"{number * 1000:.0f}{unit}"
        elif not written or written[0] == unit[0].lower():
            yield f"{number:.0f}{unit}"

    return read


def _percent(text: str) -> Iterator[str]:
    if re.fullmatch(r"0?\.\d{1,3}", text):
        yield f"{float(text) * 100:g}%"
    if re.fullmatch(r"\d{1,3}(?: ?(?:%|percent|pct))?", text):
        yield f"{int(re.sub(r'[^0-9]', '', text))}%"


def _rate(text: str) -> Iterator[str]:
    if match := re.fullmatch(r"(\d+(?:[.,]\d+)?) ?(t|tok|token|tokens|tps|tk)\b.*", text, re.IGNORECASE):
        yield f"{match[1].replace(',', '.')} t/s"


def _data_rate(text: str) -> Iterator[str]:
    """Yield the data rates that a text may mean: `8MBps` is in bytes, `64 Mb/s` and `64Mbit` in bits."""
    if whole_number(text) is not None:
        yield f"{text}MB/s"
    if match := re.fullmatch(
        r"(\d+(?:\.\d+)?) ?([kmg])(i?)(b|B|bit|byte|bytes)?(ps|/s|/sec| per second|/second)?", text, re.IGNORECASE
    ):
        unit = match[4] or "B"
        bits = unit == "b" or unit.lower() == "bit"
        scale = match[2].lower() if match[2].lower() == "k" else match[2].upper()
        yield f"{match[1]}{scale}{match[3]}{'bit/s' if bits else 'B/s'}"


def _hours(text: str) -> Iterator[str]:
    times = re.findall(r"(\d{1,2})(?::(\d\d))? ?(am|pm)?", text.lower())
    if len(times) == 2 and not re.search(r"\d{3}", text):
        yield "-".join(f"{_hour(hour, half):02}:{minute or '00'}" for hour, minute, half in times)


def _hour(hour: str, half: str) -> int:
    return int(hour) % 12 + (12 if half == "pm" else 0) if half else int(hour)


def _pattern(found: str, *shapes: str) -> Callable[[str], Iterator[str]]:
    """Return a function that yields a match in the forms that a key accepts; `{0}` is its first group."""

    def read(text: str) -> Iterator[str]:
        if match := re.fullmatch(found, text, re.IGNORECASE):
            yield from (shape.format(*match.groups(default="")) for shape in shapes)

    return read


def _layers(text: str) -> Iterator[Any]:
    if text.lower() in ("-1", "max", "every", "full", "100%", "99+", "true", "yes"):
        yield "all"


def _listen(text: str) -> Iterator[str]:
    if text in ("0", "0.0.0"):
        yield "0.0.0.0"
    bare = re.sub(r"^\w+://", "", text)
    yield from (bare, re.sub(r":\d+/?$", "", bare))


def _seconds(text: str) -> Iterator[int]:
    if match := re.fullmatch(r"(\d{1,4}) ?(?:m|min|minutes?)", text, re.IGNORECASE):
        yield int(match[1]) * 60


def _cuda(text: str) -> Iterator[str]:
    if match := re.fullmatch(r"(?:cuda|cu)?[- ]?v?(\d\d)(?:[.-]?(\d))?(?:[.-]\d+)*", text, re.IGNORECASE):
        yield f"{match[1]}.{match[2] or 0}"


def _cores(text: str) -> Iterator[dict[str, int]]:
    if match := re.fullmatch(r"(\d{1,4})[ -]?(?:physical )?(?:x|c|cores?)", text, re.IGNORECASE):
        yield {"cores": int(match[1])}


def _system(text: str) -> Iterator[str]:
    names = {"bookworm": "debian-12", "trixie": "debian-13", "jammy": "ubuntu-22.04", "noble": "ubuntu-24.04"}
    yield from (name for word, name in names.items() if word in text.lower())
    if match := re.fullmatch(r"(?:ubuntu[ -]?)?(\d\d\.\d\d)(?:\.\d+)?(?: ?lts)?", text, re.IGNORECASE):
        yield f"ubuntu-{match[1]}"


def _connect(text: str) -> Iterator[Any]:
    if text in ("localhost", "127.0.0.1", "this", "self") or nearest_name(text, ("local",)):
        yield "local"
    text = re.sub(r"^(.*?) -p ?(\d+)$", r"\1:\2", re.sub(r"^(ssh) -p ?(\d+) (.*)$", r"\1 \3 -p \2", text))
    if match := re.fullmatch(r"(?:ssh )?(?:ssh://)?(?:([\w.-]+)@)?([\w.-]+)(?::(\d+))?/?", text):
        yield {
            "host": match[2],
            **({"user": match[1]} if match[1] else {}),
            **({"port": int(match[3])} if match[3] else {}),
        }


def quant_of_bits(text: str) -> str | None:
    """Return the usual quant of so many bits: `Q4_K_M` for `4`, `4bit`, `Q4` and `int4`."""
    usual = {"2": "Q2_K", "3": "Q3_K_M", "4": "Q4_K_M", "5": "Q5_K_M", "6": "Q6_K", "8": "Q8_0"}
    match = re.fullmatch(r"(?:q|int|fp)?([2-8])[- _]?(?:bits?)?", text, re.IGNORECASE)
    return usual.get(match[1]) if match else None


def _quant(text: str) -> Iterator[str]:
    if usual := quant_of_bits(text):
        yield usual
    yield from (text.strip("*"), text.removesuffix(".gguf"))


def _model(text: str) -> Iterator[str]:
    if found := known_as(text):
        yield found


def _repository(text: str) -> Iterator[str]:
    found = re.fullmatch(
        r"(?:https?://)?(?:huggingface\.co|hf\.co)?/?([\w.-]+/[\w.-]+?)(?:[:/].*)?", text.replace("\\", "/")
    )
    if found:
        yield found[1]


def _model_of(text: str) -> Iterator[dict[str, str]]:
    """Yield the model that `OWNER/NAME:QUANT` or the path of a file means."""
    repository, _, quant = re.sub(r"^(?:https?://)?(?:huggingface\.co|hf\.co)/", "", text).partition(":")
    if text.endswith(".gguf") and text.startswith(("/", "~", ".")):
        yield {"file": text}
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        yield {"hf": repository, **({"quant": quant} if quant else {})}


def _upper(text: str) -> Iterator[str]:
    yield from (text.removeprefix("-D").upper(), text.replace("-", "_").upper())


_GIGABYTES = dict.fromkeys(("Host.ram", "Wsl.memory", "Wsl.swap", "Card.memory", "Card.reserved"), _size)
_BY_FIELD: Mapping[str, Callable[[str], Iterator[Any]]] = {
    **_GIGABYTES,
    "Card.model": _model,
    "Card.power_limit": _scaled("W", "kw"),
    "Expect.power": _scaled("W", "kw"),
    "Clocks.min": _scaled("MHz", "ghz"),
    "Clocks.max": _scaled("MHz", "ghz"),
    "Card.fans": _percent,
    "Instance.experts_on_cpu": _percent,
    "Expect.decode": _rate,
    "Expect.prefill": _rate,
    "Bandwidth.limit": _data_rate,
    "Bandwidth.hours": _hours,
    "Card.uuid": _pattern(r"(?:GPU[- :]*)?([0-9a-f]{8}-[0-9a-f-]+)", "GPU-{0}"),
    "Card.pci": _pattern(r"(?:pci[:@ ])?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2})(?:[.:](\d))?", "{0}.{1}", "{0}.0"),
    "Card.architecture": _pattern(r"(?:sm|compute)?[_-]?(\d{1,2})\.?(\d[af]?)", "{0}{1}"),
    "Gpus.cuda": _cuda,
    "Rig.connect": _connect,
    "Model.quant": _quant,
    "Engine.image": _pattern(r"(?:docker://)?([\w./-]+)[ :]([\w.-]+)", "{0}:{1}"),
    "Driver.branch": _pattern(r"(?:nvidia-)?(?:driver-)?r?([3-9]\d\d)(?:\..*|-open|-server)?", "{0}"),
    "Driver.modules": _pattern(r"(closed|legacy|nvidia)", "proprietary"),
    "Driver.from": _pattern(r"(?:debian|ubuntu|distro|apt)", "distribution"),
    "Host.os": _system,
    "Host.cpu": _cores,
    "Engine.ref": _pattern(r"b?(\d{4,6})", "b{0}"),
    "Engine.kind": _pattern(r"(ik)[-_. ]?llama.*|(llama)[-_. ]?(?:cpp|server)", "{0}_llama.cpp", "{1}.cpp"),
    "Source.sha256": _pattern(r"(?:sha256[:=])?([0-9a-f]{64}).*", "{0}"),
    "Model.sha256": _pattern(r"(?:sha256[:=])?([0-9a-f]{64}).*", "{0}"),
    "Model.hf": _repository,
    "Rig.models": _model_of,
    "Store.path": _pattern(r"/?((?:[\w.+-]+/)+[\w.+-]+)/?", "/{0}"),
    "Instance.gpu_layers": _layers,
    "Instance.listen": _listen,
    "Instance.cpus": _pattern(r"(\d+)(?::|\.\.|to| - |\u2013)(\d+)", "{0}-{1}"),
    "Instance.kv": _pattern(r"(?:q|int)?([458])(?:_?0)?|fp(16|32)", "q{0}_0", "f{1}"),
    "CacheTypes.k": _pattern(r"(?:q|int)?([458])(?:_?0)?|fp(16|32)", "q{0}_0", "f{1}"),
    "CacheTypes.v": _pattern(r"(?:q|int)?([458])(?:_?0)?|fp(16|32)", "q{0}_0", "f{1}"),
    "Instance.backend": _pattern(r"(?:docker|docker-compose|docker compose|container)", "compose"),
    "Instance.load_timeout": _seconds,
    "Instance.drain": _seconds,
    "Secret.env": _pattern(r"\$\{?(\w+)\}?", "{0}"),
    "Engine.options": _upper,
    "Instance.environment": _upper,
    "Sharing.address": _pattern(r"(?:\w+://)?([^/:]+)(?::\d+)?/?", "{0}"),
    "Store.from": _pattern(r"(?:huggingface|huggingface\.co|hf|https?://huggingface\.co/?|hugging-?face)", "hub"),
}
"""The functions that read a written value, by field. Their results may still be invalid."""
