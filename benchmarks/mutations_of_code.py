"""Small faults in Python source: where one can be, and what it changes.

A fault replaces one node of the syntax tree as source text and leaves the rest of the file as it is. Imports, type
annotations, strings, and statements without effect have none.
"""

from __future__ import annotations

import ast
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

FOLDERS = ("llamaherd", "roles")
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
DROPPED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
"""A dropped assignment to a name is left out: each use of the name would fail."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fault:
    """One change of one file, in offsets of its bytes."""

    number: int
    kind: str
    file: str
    line: int
    begin: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.number:3}  {self.file}:{self.line}  {self.kind}: {old} -> {new}"


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes in which a fault can be."""
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "type_params", "decorator_list", "bases"):
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield each change of this node: its kind, the node that is replaced, and the new text."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right):
            yield "comparison", node, f"({ast.unparse(ast.Compare(left, [NEGATED[type(op)]()], right))})"
        case ast.BoolOp(op=op, values=values):
            other: ast.boolop = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and/or", node, f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
            if isinstance(node, ast.If) and not node.orelse:
                yield "branch", test, "False"
        case ast.comprehension(ifs=[test, *_]):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Constant(value=bool(value)):
            yield "constant", node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", node, str(value + 1)
        case ast.Return(value=ast.AST() as value) if ast.unparse(value) not in ("None", "()", "[]", "False"):
            yield "return", value, "()" if isinstance(value, ast.Tuple) else "None"
    if isinstance(node, DROPPED) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        yield "statement", node, "pass"


def candidates(text: str, file: str) -> list[Fault]:
    """Return every fault that the file can have."""
    starts = [0, *accumulate(len(line) for line in text.encode().splitlines(keepends=True))]
    found = []
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        waiting += children(node)
        for kind, at, new in changes(node):
            assert isinstance(at, ast.expr | ast.stmt)
            assert at.end_lineno is not None
            assert at.end_col_offset is not None
            begin, end = starts[at.lineno - 1] + at.col_offset, starts[at.end_lineno - 1] + at.end_col_offset
            old = text.encode()[begin:end].decode()
            found.append(Fault(0, kind, file, at.lineno, begin, end, old, new))
    return sorted(found, key=lambda fault: (fault.begin, fault.kind))


def draw(root: Path, count: int, seed: int) -> list[Fault]:
    """Draw up to `count` faults that do not overlap: a file by its lines, then a kind, then a place."""
    rng = random.Random(seed)
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    sums = list(accumulate(text.count("\n") for text in texts))
    drawn: list[Fault] = []
    for _ in range(100 * count):
        if len(drawn) == count:
            break
        at = bisect_right(sums, rng.randrange(sums[-1]))
        kinds = defaultdict(list)
        for fault in candidates(texts[at], files[at].relative_to(root).as_posix()):
            kinds[fault.kind].append(fault)
        if not kinds:
            continue
        fault = rng.choice(kinds[rng.choice(sorted(kinds))])
        if not any(fault.file == other.file and fault.begin < other.end and other.begin < fault.end for other in drawn):
            drawn.append(Fault(len(drawn) + 1, *tuple(vars(fault).values())[1:]))
    return drawn


def names_around(tree: ast.Module, line: int) -> tuple[set[Function], set[str]]:
    """Return the innermost function at the line; outside functions, the names that are bound there."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    around = [node for node in statements if node.lineno <= line <= (node.end_lineno or 0)]
    functions = [node for node in around if isinstance(node, Function)]
    if functions and line >= functions[-1].body[0].lineno:
        return {functions[-1]}, set()
    nodes = (node for one in around for node in ast.walk(one))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return set(), names | {one.name for one in functions}


def probe_lines(root: Path, faults: Sequence[Fault]) -> dict[str, str]:
    """Return the changed files: each function of a fault, or that reads a name of one, records its calls."""
    trees = {path: ast.parse(path.read_bytes()) for folder in FOLDERS for path in (root / folder).rglob("*.py")}
    numbers: dict[tuple[Path, Function], set[int]] = defaultdict(set)
    readers: dict[str, set[tuple[Path, Function]]] = defaultdict(set)
    for path, tree in trees.items():
        for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
            for node in ast.walk(function):
                if isinstance(node, ast.Name | ast.Attribute):
                    readers[node.id if isinstance(node, ast.Name) else node.attr].add((path, function))
    for fault in faults:
        path = root / fault.file
        functions, names = names_around(trees[path], fault.line)
        for place in [(path, function) for function in functions] + [at for name in names for at in readers[name]]:
            numbers[place].add(fault.number)
    texts = {path: path.read_text(encoding="utf-8").splitlines(keepends=True) for path, _ in numbers}
    for (path, function), those in numbers.items():
        first = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0]
        begin = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
        if begin > function.lineno:  # else a stub on one line
            call = f'{" " * first.col_offset}__import__("mutant_probes").reached({(*sorted(those),)})\n'
            texts[path][begin - 1] = call + texts[path][begin - 1]
    return {path.relative_to(root).as_posix(): "".join(lines) for path, lines in texts.items()}
