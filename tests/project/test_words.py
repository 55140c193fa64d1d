"""The words of docstrings and messages: a function's docstring begins with a verb, and no private words occur."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("llamaherd", "roles")

PRIVATE = re.compile(
    r"\b(?:told|tells?|says?|said|saying|asks|asked|asking|answers?|answered|answering|looks?|looked|seen|sees"
    r"|wants?|wanted|knows?|made so|as planned|beside|put back|taken back|comes back|goes on with|being away"
    r"|whoever|who|whom|nobody|somebody|anybody|does not do for|is none that|by lot|by chance|at random of"
    r"|wanders?|wandering|way out|ways out|held to|held against|in turn|in turns|a turn|at its place"
    r"|lends?|lending|neighbours?|speaks? of)\b",
    re.IGNORECASE,
)
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|\{[^}]*\}|--[a-z-]+")
"""Names, quotations, values and options in a text."""
CLAUSE = re.compile(r"(?:What|Whether|How|Which|Where|Who|Whose|Why|When)\b")
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        Accept Add Adopt Allow Announce Append Apply Arm Assign Attach Await Begin Blame Bound Break Build Cache Chat
        Call Change Charge Check Choose Clear Close Collect Combine Compare Compile Complete Compute Configure Connect
        Continue Convert Copy Count Create Cut Declare Decode Delete Derive Describe Disarm Discard Divide Download
        Drain Draw Drop Encode End Ensure Escape Estimate Exit Expand Explain Export Extract Fail Fetch Fill Filter
        Find Finish Fit Fix Flush Follow Forget Format Free Generate Give Group Guess Hash Hide Hold Ignore Import
        Include Insert Inspect Install Join Judge Keep Kill Leave Let Limit Link List Load Lock Log Make Manage Map
        Mark Match Measure Merge Migrate Move Name Normalise Note Number Open Order Parse Pass Pause Perform Pick
        Place Plan Play Point Predict Prepare Print Probe Prompt Protect Prove Provide Prune Pull Push Put Query Queue
        Quote Raise Read Receive Record Redirect Refuse Register Reject Release Reload Remember Remove Rename Render
        Renew Repair Repeat Replace Report Request Require Reserve Reset Resolve Restart Restore Resume Return Reverse
        Revoke Roll Rotate Round Run Save Scale Scan Search Select Send Serve Set Shorten Show Simulate Sit Skip Sleep
        Smooth Sort Split Spread Stage Start Stop Store Stream Strip Subtract Suggest Sum Swap Switch Take Test Trim
        Try Turn Undo Unlock Update Upgrade Use Validate Verify Wait Walk Warm Warn Watch Wrap Write Yield
        """,
    )
)
"""The first words of functions' docstrings; add a verb that is missing."""


def modules(package: str) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted((ROOT / package).rglob("*.py")):
        yield str(file.relative_to(ROOT)), ast.parse(file.read_text(encoding="utf-8"))


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Yield the docstrings of modules, classes, functions and attributes, with their owners."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for index, statement in enumerate(body if isinstance(body, list) else ()):
            match statement:
                case ast.Expr(ast.Constant(str()) as text):
                    yield (node if index == 0 else statement), text


def is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in function.decorator_list)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the lines of string literals that are sentences: at least three words, and no pattern or program."""
    skipped = {id(text) for _, text in docstrings(tree)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func).startswith("re."):
            skipped |= {id(node) for node in ast.walk(call)}
    # The parts of an f-string are one text: alone, a part between two values in backquotes looks like a quotation.
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) and id(node) not in skipped]
    skipped |= {id(part) for node in formatted for part in node.values}
    texts = [(node.lineno, "".join(_text(part) for part in node.values)) for node in formatted]
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in skipped)
    texts += [(node.lineno, node.value) for node in plain if isinstance(node.value, str)]
    for line, value in texts:
        text = QUOTED.sub("", value)
        if len(re.findall(r"[a-z]{2,}\s", text)) >= 2 and "\n#" not in text and not text.startswith("#!"):
            yield line, text


def _text(part: ast.expr) -> str:
    """Return a part of an f-string; `{}` for a value."""
    return str(part.value) if isinstance(part, ast.Constant) else "{}"


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_of_functions_begin_with_a_verb(package: str) -> None:
    """The docstring of a property may be a noun instead."""
    wrong = []
    for module, tree in modules(package):
        for owner, text in docstrings(tree):
            if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
                first = re.split(r"[\s,.:;]", str(text.value).strip(), maxsplit=1)[0]
                noun = isinstance(owner, ast.FunctionDef) and is_property(owner) and not CLAUSE.match(first)
                if first not in VERBS and not noun:
                    wrong.append(f"{module}:{text.lineno}: {owner.name}: {first} …")
    assert wrong == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_docstring_or_message_has_a_private_word(package: str) -> None:
    """A quotation in backquotes or quotation marks may contain one."""
    wrong = []
    for module, tree in modules(package):
        texts = [(text.lineno, QUOTED.sub("", str(text.value))) for _, text in docstrings(tree)]
        for line, text in (*texts, *messages(tree)):
            wrong += [f"{module}:{line}: {found[0]} in: {text.strip()[:80]}" for found in PRIVATE.finditer(text)]
    assert wrong == []
