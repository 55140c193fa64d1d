"""Documents: each input of a verb travels as it is, all else is refused, and no secret is shown."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.onhost.document import (
    MOST_BYTES,
    MOST_DEPTH,
    DocumentError,
    Secret,
    decode,
    dump,
    encode,
    parse_document,
)
from tests.support.inputs import OBJECTS, TEXTS, all_verbs, values_of

HIDDEN = "sk-hidden-3f1d9c"


@pytest.mark.parametrize("verb", all_verbs())
@given(data=st.data())
def test_an_input_arrives_as_it_was_sent(verb: str, data: st.DataObject) -> None:
    kind = all_verbs()[verb].input
    value = data.draw(values_of(kind))
    assert decode(kind, parse_document(dump(value).encode())) == value


@pytest.mark.parametrize("verb", all_verbs())
@given(value=OBJECTS)
def test_another_value_is_refused_or_has_the_types_of_the_input(verb: str, value: object) -> None:
    kind = all_verbs()[verb].input
    try:
        found = decode(kind, value)
    except DocumentError:
        return
    assert isinstance(found, kind)


EMPTY = Secret("")


@dataclass(frozen=True)
class Inner:
    """A part of a document."""

    size: int
    name: str = "default"


@dataclass(frozen=True)
class Outer:
    """A document with a field of each type."""

    text: str = ""
    number: int = 0
    amount: float = 0.0
    on: bool = False
    key: Secret = EMPTY
    kind: Literal["unit", "container", 1] = "unit"
    maybe: int | None = None
    many: tuple[Inner, ...] = ()
    pair: tuple[str, int] = ("", 0)
    mapping: Mapping[str, int] = field(default_factory=dict)
    anything: object = None
    whatever: Any = None


@given(values_of(Outer))
def test_each_type_travels(value: Outer) -> None:
    assert decode(Outer, parse_document(dump(value).encode())) == value


def test_defaults_are_for_fields_that_are_not_sent() -> None:
    assert decode(Outer, {}) == Outer()
    assert decode(Inner, {"size": 1}) == Inner(1)
    assert decode(Outer, {"amount": 3}) == Outer(amount=3.0)
    assert isinstance(decode(Outer, {"amount": 3}).amount, float)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "Outer is not of type dict"),
        (None, "Outer is not of type dict"),
        ({"text": 1}, "Outer.text is not of type str"),
        ({"text": None}, "Outer.text is not of type str"),
        ({"number": "1"}, "Outer.number is not of type int"),
        ({"number": True}, "Outer.number is not of type int"),
        ({"number": 1.0}, "Outer.number is not of type int"),
        ({"amount": False}, "Outer.amount is not of type float"),
        ({"amount": "1"}, "Outer.amount is not of type float"),
        ({"amount": 10**400}, "Outer.amount is too large"),
        ({"on": 1}, "Outer.on is not of type bool"),
        ({"key": 1}, "Outer.key is not of type str"),
        ({"kind": "pod"}, "Outer.kind is not one of its values"),
        ({"kind": True}, "Outer.kind is not one of its values"),
        ({"maybe": "1"}, "Outer.maybe is not of type int"),
        ({"maybe": True}, "Outer.maybe is not of type int"),
        ({"many": {}}, "Outer.many is not of type list"),
        ({"many": [{}]}, r"Outer.many\[0\].size is missing"),
        ({"many": [{"size": 1}, {"size": 1, "colour": 2}]}, r"Outer.many\[1\] has a field that this version"),
        ({"pair": ["a"]}, "Outer.pair does not have 2 items"),
        ({"pair": ["a", 1, 2]}, "Outer.pair does not have 2 items"),
        ({"pair": ["a", True]}, r"Outer.pair\[1\] is not of type int"),
        ({"mapping": []}, "Outer.mapping is not of type dict"),
        ({"mapping": {"a": "1"}}, r"Outer.mapping\[…\] is not of type int"),
        ({"colour": 1}, "Outer has a field that this version does not have: 'colour'"),
        ({"c" * 99: 1}, f"'{'c' * 40}'$"),
    ],
)
def test_what_is_refused(given: object, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        decode(Outer, given)


@given(TEXTS.filter(lambda text: len(text) > 5), values_of(Outer))
def test_no_message_contains_a_value(text: str, value: Outer) -> None:
    sent = parse_document(dump(value).encode())
    assert isinstance(sent, dict)
    for name in sent:
        if name in ("anything", "whatever"):
            continue
        with pytest.raises(DocumentError) as raised:
            decode(Outer, {**sent, name: [text + HIDDEN]})
        assert HIDDEN not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"a": 1, "a": 1}', "occurs twice"),
        ('{"a": [{"b": 1, "c": 2, "b": 3}]}', "occurs twice"),
        ("NaN", "not finite"),
        ('{"a": -Infinity}', "not finite"),
        ("[1e999]", "not finite"),
        ("[-1e999]", "not finite"),
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{} {}", "not JSON"),
        ('{"a": 1,}', "not JSON"),
        ("'a'", "not JSON"),
        (f'"{HIDDEN}', "not JSON"),
        ("9" * 5000, "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[" * (MOST_DEPTH + 1) + "1" + "]" * (MOST_DEPTH + 1), "levels"),
        ('{"a":' * (MOST_DEPTH + 1) + "1" + "}" * (MOST_DEPTH + 1), "levels"),
    ],
)
def test_an_ambiguous_or_broken_document(document: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as raised:
        parse_document(document.encode())
    assert HIDDEN not in "".join(traceback.format_exception(raised.value))


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(DocumentError, match="not JSON"):
        parse_document(b'"\xff\xfe\xff"')


def test_the_largest_document() -> None:
    most = b'"' + b"a" * (MOST_BYTES - 2) + b'"'
    assert parse_document(most) == "a" * (MOST_BYTES - 2)
    with pytest.raises(DocumentError, match="more than 64 MiB"):
        parse_document(most + b" ")


def test_the_deepest_document() -> None:
    deepest = "[" * (MOST_DEPTH - 1) + "1" + "]" * (MOST_DEPTH - 1)
    assert parse_document(deepest.encode()) == json.loads(deepest)


@given(OBJECTS)
def test_json_is_read_as_python_reads_it(value: object) -> None:
    finite = not isinstance(value, float) or math.isfinite(value)
    text = json.dumps(value)
    if finite and "Infinity" not in text:
        assert parse_document(text.encode()) == value
    else:
        with pytest.raises(DocumentError, match="not finite"):
            parse_document(text.encode())


def test_what_json_lacks_is_written_as_text() -> None:
    assert encode({1: ("a", [None, 1.5]), "path": complex(1)}) == {"1": ["a", [None, 1.5]], "path": "(1+0j)"}


@dataclass(frozen=True)
class Keyed:
    """A document with a key."""

    key: Secret
    others: tuple[Secret, ...] = ()


def test_a_secret_is_never_shown() -> None:
    secret = Secret(HIDDEN)
    keyed = Keyed(secret, (secret,))
    shown = [
        repr(secret),
        str(secret),
        f"{secret} {secret!r} {secret!s} {secret!a}",
        f"{secret}",
        "{} {!r}".format(*(secret, secret)),
        repr(keyed),
        str([keyed]),
        repr({secret: 1}),
    ]
    try:
        raise ValueError(secret, keyed)
    except ValueError as error:
        shown += traceback.format_exception(error)
    assert HIDDEN not in "".join(shown)
    assert dump(keyed) == f'{{"key":"{HIDDEN}","others":["{HIDDEN}"]}}'


def test_secrets_are_compared_by_their_texts() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    with pytest.raises(AttributeError):
        object.__setattr__(Secret("a"), "more", 1)
