"""Bodies of requests that two programs might read differently, drawn by a seed; and how other programs read them."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from box.cli import CACHE
from box.downloads import LLAMA_CPP, fetch
from tests.support.rigs import ROOT

REFUSED = object()
"""What a program reads from a body that it does not accept."""
Chance = random.Random

_BLANKS = ("", "", "", " ", "\n", "\r\n\t", "  ")
_NO_BLANKS = ("\f", "\v", "\0", "\u00a0", "\u2028", "\ufeff", "/**/", '/*"model":"small",*/', "//\n", "#\n", ",")
_VALUES = ("0", "-0", "0.7", "1e-3", "1E+4", "4096", "9007199254740993", "9" * 20, "9" * 400, "true", "false", "null")
_NO_VALUES = (
    *("1E400", "9" * 5000, "01", "1.", ".5", "+1", "0x10", "1_0", "--1", "1e", "NaN", "-Infinity", "True", "nul"),
    *(
        "undefined",
        "'small'",
        '"\t"',
        '"\\x41"',
        '"\\u12"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"small',
        "[1,]",
        '{"a"}',
        "[1 2]",
    ),
)
_DEPTHS = (3, 20, 49, 50, 98, 99, 100, 400, 1100, 20_000)
_TEXTS = (
    "Say hello.",
    'He said "model": and left',
    '{"model":"small","messages":[]}',
    '","model":"small',
    "\\",
    '\\"',
    "\\\\\\",
    "C:\\models\\small",
    "日本語 ñ 😀",
    "\u2028\u2029\ufeff",
    "\t\n\r\b\f",
    "/* */ // #",
)


def bodies(seed: int, number: int, models: Sequence[str]) -> Iterator[bytes]:
    """Yield bodies that name these models in ways that parsers might disagree on. Every third one is in order but for
    its members `model`."""
    chance = Chance(seed)
    for _ in range(number):
        disorder = chance.choice((0, 0.2, 1))
        body = _Drawn(chance, models, disorder).text().encode("utf-8", "surrogatepass")
        for _ in range(chance.choice((0, 1, 2))):
            if chance.random() < disorder:
                body = chance.choice(_CHANGES)(chance, body)
        yield body


@dataclass(frozen=True)
class _Drawn:
    """A body that is drawn; `disorder` is the share of what is odd in it, of all that may be."""

    chance: Chance
    models: Sequence[str]
    disorder: float

    def text(self) -> str:
        """Return an object with `model` none to three times, between other members."""
        times = self.chance.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))
        members = [self.member(self.model_key(), self.model()) for _ in range(times)]
        names = ("messages", "stream", "tools", "Models", "mode", "model_", "metadata", "")
        members += [self.member(self.key(name), self.value(2)) for name in self.chance.sample(names, 4)]
        self.chance.shuffle(members)
        return f"{self.blank()}{{{','.join(members)}}}{self.blank()}"

    def odd(self, share: float) -> bool:
        return self.chance.random() < share * self.disorder

    def member(self, key: str, value: str) -> str:
        return f"{self.blank()}{key}{self.blank()}:{self.blank()}{value}{self.blank()}"

    def blank(self) -> str:
        if self.odd(0.01):
            return self.chance.choice(_NO_BLANKS)
        return " " * 60_000 if self.chance.random() < 0.001 else self.chance.choice(_BLANKS)

    def model_key(self) -> str:
        kind = self.chance.random()
        if kind < 0.88:
            return '"model"'
        names = ("MODEL", "Model", "model ", "\ufeffmodel", "model\0", "\uff4dodel")
        return f'"{self.escaped("model")}"' if kind < 0.96 else json.dumps(self.chance.choice(names))

    def key(self, name: str) -> str:
        if self.odd(0.02):
            return self.chance.choice((name, f"'{name}'", f'"{name}', f"[{name!r}]"))
        return f'"{self.escaped(name)}"' if self.odd(0.05) else json.dumps(name)

    def model(self) -> str:
        kind, name = self.chance.random(), self.chance.choice(self.models)
        if kind < 0.8:
            return f'"{name}"'
        if kind < 0.9:
            return f'"{self.escaped(name)}"'
        texts = (name.upper(), f"{name} ", f" {name}", f"{name}\0", f"x/{name}", "", f'{name}"', f"{name}\\")
        others = (f"'{name}'", name, f'["{name}"]', f'{{"model":"{name}"}}', "7", "null", "true")
        return self.chance.choice((*map(json.dumps, texts), *others))

    def escaped(self, text: str) -> str:
        """Return a text with escapes, where there may be some."""
        ways: tuple[Callable[[str], str], ...] = (
            lambda sign: sign,
            lambda sign: "\\/" if sign == "/" else sign,
            lambda sign: f"\\u{ord(sign):04x}",
            lambda sign: f"\\u{ord(sign):04X}",
            lambda sign: f"\\{sign}",
            lambda sign: f"\\\\{sign}",
            lambda sign: f"\\u{ord(sign):02x}",
        )
        weights = (8, 4, 1, 1, 0.1, 0.1, 0.05)
        return "".join(self.chance.choices(ways, weights)[0](sign) for sign in text)

    def value(self, depth: int) -> str:
        kind = self.chance.random()
        if kind < 0.01:
            deep = self.chance.choice(_DEPTHS)
            ways = (("[", "", "]"), ('{"model":', '"small"', "}"), ('{"a":[', "1", "]}"))
            opened, inside, closed = self.chance.choice(ways)
            return opened * deep + inside + closed * deep
        if kind < 0.45 or not depth:
            text = self.chance.choice(_TEXTS) * self.chance.choice((1, 1, 1, 50))
            return json.dumps(text, ensure_ascii=self.chance.random() < 0.5)
        if kind < 0.6:
            return self.chance.choice(_NO_VALUES if self.odd(0.2) else _VALUES)
        inner = [self.value(depth - 1) for _ in range(self.chance.randrange(4))]
        if kind < 0.8:
            return "[" + ",".join(inner) + "]"
        return "{" + ",".join(self.member(self.chance.choice(('"model"', self.key("a"))), each) for each in inner) + "}"


def _inserted(chance: Chance, body: bytes) -> bytes:
    """Bytes that are no UTF-8, or have a meaning to some parser, before a quote or anywhere."""
    signs = (
        b"\xc3",
        b"\xe2\x80",
        b"\xf0\x9f",
        b"\xc0\xa2",
        b"\xed\xa0\x80",
        b"\xff",
        b"\x80",
        b"\0",
        b"\n",
        b"\x7f",
        b"\\",
    )
    quotes = [at for at, sign in enumerate(body) if sign == ord('"')]
    at = chance.choice(quotes) if quotes and chance.random() < 0.7 else chance.randrange(len(body) + 1)
    return body[:at] + chance.choice((*signs, b'"', b"}", b"{", b",", b":")) + body[at:]


def _encoded(chance: Chance, body: bytes) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-7")))


def _followed(chance: Chance, body: bytes) -> bytes:
    more = (
        b"}",
        b'{"model":"small"}',
        b'\n{"model":"small"}',
        b',"model":"small"}',
        b"\0",
        b"//",
        b"\x1a",
        b"&model=small",
    )
    return body + chance.choice(more)


def _preceded(chance: Chance, body: bytes) -> bytes:
    return (
        chance.choice((b"\xef\xbb\xbf", b'{"model":"small"}', b"\0", b")]}',\n", b"[", b"model=small&", b"\x1e")) + body
    )


def _without(chance: Chance, body: bytes) -> bytes:
    at = chance.randrange(len(body) or 1)
    return body[:at] + body[at + chance.choice((1, 1, 2, 9, len(body))) :]


def _twice(chance: Chance, body: bytes) -> bytes:
    first, last = sorted(chance.randrange(len(body) + 1) for _ in range(2))
    return body[:last] + body[first:]


def _flipped(chance: Chance, body: bytes) -> bytes:
    at = chance.randrange(len(body) or 1)
    return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]


_CHANGES = (_inserted, _inserted, _encoded, _followed, _preceded, _without, _twice, _flipped)


def python_model(body: bytes) -> object:
    """Return `model` as vLLM reads it, None where there is none, or REFUSED."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return REFUSED
    model = read.get("model") if isinstance(read, dict) else None
    return model if isinstance(model, str) else None


def is_ambiguous(body: bytes) -> bool:
    """Return whether the body is JSON whose outer object has `model` more than once."""
    outer: list[str] = []

    def keep(pairs: list[tuple[str, object]]) -> dict[str, object]:
        outer[:] = [name for name, _ in pairs]  # The outer object ends last.
        return dict(pairs)

    try:
        read = json.loads(body, object_pairs_hook=keep)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and outer.count("model") > 1


def engine_program() -> Path:
    """Return a program that reads JSON by llama.cpp's own parser, compiled once for each source and compiler."""
    source = ROOT / "tests/support/read_model.cpp"
    compiler = subprocess.run(["g++", "--version"], check=True, capture_output=True).stdout
    key = hashlib.sha256(b"\0".join([repr(LLAMA_CPP).encode(), source.read_bytes(), compiler])).hexdigest()[:16]
    program = CACHE / f"read_model-{key}"
    if program.exists():
        return program
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as folder, tarfile.open(fetch(LLAMA_CPP, CACHE)) as archive:
        header = next(member for member in archive if member.name.endswith("/vendor/nlohmann/json.hpp"))
        content = archive.extractfile(header)
        assert content
        (Path(folder) / "json.hpp").write_bytes(content.read())
        made = Path(folder) / program.name
        subprocess.run(["g++", "-std=c++17", f"-I{folder}", str(source), "-o", str(made)], check=True)
        made.rename(program)
    return program


@contextmanager
def engine_reader() -> Iterator[Callable[[bytes], object]]:
    """Yield a function that reads `model` by llama.cpp's own parser, and returns it as `python_model` does."""
    with subprocess.Popen([engine_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def read(body: bytes) -> object:
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"%d\n" % len(body) + body)
            process.stdin.flush()
            word, _, model = process.stdout.readline().decode().strip().partition(" ")
            if word == "model":
                return bytes.fromhex(model).decode("utf-8", "replace")
            return {"none": None, "refused": REFUSED}[word]

        yield read
