"""Compute integer expressions of a shell, such as `PORT + 1`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

_LONGEST = 200
_LARGEST = 1 << 62
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda left, right: int(left / right) if abs(left) < 1 << 50 else left // right,
    ast.Mod: lambda left, right: left - right * int(left / right),
}


def compute(text: str, variables: Mapping[str, str]) -> int | None:
    """Return the value of an expression; None if a part of it is unknown, or for other operators."""
    if len(text) > _LONGEST:
        return None
    for _ in range(2):
        text = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda found: variables.get(found[1], found[0])[:_LONGEST], text)
    try:
        tree = ast.parse(re.sub(r"\b0+(?=\d)", "", text.strip()).replace("/", "//"), mode="eval")
        return _value(tree.body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    """Return the value of a node. Raise ValueError for anything but whole numbers and their operators."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            result = number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            result = _OPERATORS[type(sign)](_value(left), _value(right))
        case _:
            raise ValueError(ast.dump(node)[:40])
    if abs(result) > _LARGEST:
        raise ValueError(str(result)[:40])
    return result
