"""Verbs by their names, and documents that name none, or are of another version."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from hypothesis import given

from llamaherd.onhost.document import VERSION, DocumentError, dump, parse_document
from llamaherd.onhost.verbs import find_verb, perform
from roles.serve.onhost.model import KeyRemovalInput
from tests.support.inputs import TEXTS, all_verbs
from tests.support.played_host import File, PlayedHost
from tests.support.rigs import ROOT

KEY = "/etc/llamaherd/keys/chat"
TAKE_VERBS = {"Inspection", "RunVerb", "converse", "guarded_verb", "query_verb", "request", "start_guard"}
"""Functions and classes that are called with the name of a verb."""
VERB = re.compile(r"[a-z_]+\.[a-z_.]+")
GOOD = {"version": VERSION, "verb": "serve.removal.remove_key", "input": {"name": "chat"}}


def test_each_verb_of_each_role_is_found_by_its_name() -> None:
    assert {"serve.switch.switch", "serve.exchange.run", "serve.removal.remove"} <= all_verbs().keys()
    for name, verb in all_verbs().items():
        assert find_verb(name) is verb


def named_verbs() -> Iterator[str]:
    """Yield the verbs that calls of our code name by a text: `query_verb(remote, "llamaherd.files.keys", …)`."""
    for file in (*(ROOT / "llamaherd").rglob("*.py"), *(ROOT / "roles").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in TAKE_VERBS:
                texts = (each.value for each in node.args if isinstance(each, ast.Constant))
                yield from (text for text in texts if isinstance(text, str) and VERB.fullmatch(text))


def test_each_verb_that_is_named_exists() -> None:
    named = set(named_verbs())
    assert {"llamaherd.server_control.pauses", "serve.switch.switch"} <= named
    for name in named:
        find_verb(name)


def test_a_verb_is_performed() -> None:
    host = PlayedHost({}, files={KEY: File("a key")})
    assert perform(parse_document(dump(GOOD).encode()), host) is None
    assert host.files == {}
    assert perform({**GOOD, "input": parse_document(dump(KeyRemovalInput("chat")).encode())}, host) is None


@pytest.mark.parametrize(
    "name",
    [
        "serve.removal.explode",
        "serve.nothing.remove",
        "serve.remove",
        "nobody.remove",
        "serve.model.server",
        "base.changes",
        "serve.real.real_tools",
    ],
)
def test_a_verb_that_is_missing(name: str) -> None:
    with pytest.raises(DocumentError, match=f"this version of the program has no verb `{name}`"):
        find_verb(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "os",
        "os.system.",
        "serve..remove",
        "serve.removal.remove.more",
        "serve.__init__.x",
        "SERVE.a",
        "a/b.c",
        "a.b\n",
    ],
)
def test_a_name_that_is_no_verb(name: str) -> None:
    with pytest.raises(DocumentError, match="the document names no verb"):
        find_verb(name)


@given(TEXTS)
def test_any_name(name: str) -> None:
    with pytest.raises(DocumentError):
        find_verb(name)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "alone"),
        ([], "alone"),
        ({}, "alone"),
        ({"version": VERSION, "verb": GOOD["verb"]}, "alone"),
        ({**GOOD, "more": 1}, "alone"),
        ({**GOOD, "version": VERSION + 1}, "version 1 of documents alone"),
        ({**GOOD, "version": "1"}, "version 1 of documents alone"),
        ({**GOOD, "version": True}, "version 1 of documents alone"),
        ({**GOOD, "version": 1.0}, "version 1 of documents alone"),
        ({**GOOD, "verb": 1}, "names no verb"),
        ({**GOOD, "verb": None}, "names no verb"),
        ({**GOOD, "input": None}, "KeyRemovalInput is not of type dict"),
        ({**GOOD, "input": {"name": 1}}, "KeyRemovalInput.name is not of type str"),
    ],
)
def test_a_document_that_is_refused_changes_nothing(document: object, message: str) -> None:
    host = PlayedHost({}, files={KEY: File("a key")})
    with pytest.raises(DocumentError, match=message):
        perform(document, host)
    assert (host.steps, list(host.files)) == (0, [KEY])
