"""The rules that findings are of: each declared once, beside what finds it, and told by the page that is made of it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType

import pytest

from llamaherd.checks.context import RigCheck
from llamaherd.checks.registry import CHECKS
from llamaherd.diagnostics.findings import GRAVITY, Place
from llamaherd.pipeline.rules import SECTIONS, rules, rules_index
from tests.support.rigs import ROOT
from tests.support.sample import drawn

CODE = re.compile(r"LH\d{3}")
PAGES, INDEX = ROOT / "docs/findings", ROOT / "docs/findings.md"


@cache
def parsed() -> dict[str, ast.Module]:
    """All modules of the core, by their paths in it."""
    core = ROOT / "llamaherd"
    return {str(file.relative_to(core)): ast.parse(file.read_text(encoding="utf-8")) for file in core.rglob("*.py")}


def declared() -> Iterator[tuple[str, str, str]]:
    """Module, name and code of every rule in the sources."""
    for module, tree in parsed().items():
        for node in tree.body:
            match node:
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("Rule"), [ast.Constant(code), *_])):
                    yield module, name, str(code)


def test_each_code_is_of_one_rule_and_each_rule_has_a_name_of_its_own() -> None:
    codes, names = Counter(code for _, _, code in declared()), Counter(name for _, name, _ in declared())
    assert [each for each, many in (codes | names).items() if many > 1] == []
    assert set(codes) == set(rules())
    assert all(CODE.fullmatch(code) for code in codes)


def test_no_code_stands_where_no_rule_is_declared() -> None:
    """What a finding is of is said by a rule: neither a code nor a `Finding` is made of words elsewhere."""
    made = [module for module, tree in parsed().items() if _calls(tree, "Finding")]
    assert made == ["diagnostics/findings.py"]
    rules_of = Counter(module for module, _, _ in declared())
    for module, tree in parsed().items():
        told = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and CODE.fullmatch(str(node.value))]
        assert len(told) == rules_of[module], f"{module}: {[each.value for each in told]}"


def _calls(tree: ast.Module, name: str) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(each, ast.Name) and each.id == name for each in calls)


def test_each_rule_is_used() -> None:
    used = {
        node.id
        for tree in parsed().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert sorted({name for _, name, _ in declared()} - used) == []


def test_no_finding_is_of_another_severity_than_its_page_says() -> None:
    """Where a severity stands beside a rule in the sources; the examples try those that are worked out."""
    of = {name: rules()[code] for _, name, code in declared()}
    wrong = []
    for module, tree in parsed().items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            asked = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            rule = next(
                (of[each.id] for each in [*asked, *call.args] if isinstance(each, ast.Name) and each.id in of), None
            )
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            plain = [each for each in given if isinstance(each, ast.Constant | ast.IfExp)]
            said = {node.value for each in plain for node in ast.walk(each) if isinstance(node, ast.Constant)}
            wrong += [(module, rule.code, each) for each in said & set(GRAVITY) if rule and each not in rule.severities]
    assert wrong == []


@pytest.mark.parametrize("code", drawn(rules()))
def test_pages_are_as_the_rules_make_them(code: str) -> None:
    """`scripts/findings` writes them, and the tables."""
    assert (PAGES / f"{code}.md").read_text(encoding="utf-8") == rules()[code].page


def test_each_page_is_of_a_rule_and_has_its_row() -> None:
    assert {page.stem for page in PAGES.iterdir()} == set(rules())
    assert INDEX.read_text(encoding="utf-8").endswith("\n\n" + rules_index())
    assert [each.first for each in SECTIONS] == sorted(each.first for each in SECTIONS)


def test_a_finding_is_of_its_rule() -> None:
    rule = rules()["LH151"]
    place = Place(Path("rig.yaml"), 3, 7)
    found = rule.at(place, "too little", "add some"), rule.at(place, "hardly enough", "add some", "warning")
    assert [(each.code, each.severity) for each in found] == [("LH151", "error"), ("LH151", "warning")]
    with pytest.raises(AssertionError, match="LH151 is never a note"):
        rule.at(place, "just enough", "add some", "note")


def test_each_check_is_listed() -> None:
    """A public function of checks/ that is given a rig as they are is one of them."""
    written = {
        f"{module.removesuffix('.py').replace('/', '.')}.{node.name}"
        for module, tree in parsed().items()
        if module.startswith("checks/")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if node.returns and ast.unparse(node.returns) == "Iterator[Finding]"
        if [each.annotation and ast.unparse(each.annotation) for each in node.args.args] == ["RigContext"]
    }
    assert written == {
        f"{each.__module__.removeprefix('llamaherd.')}.{each.__name__}" for each in map(_function, CHECKS)
    }


def _function(check: RigCheck) -> FunctionType:
    assert isinstance(check, FunctionType)
    return check
