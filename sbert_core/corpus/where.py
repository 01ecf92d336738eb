"""A condition written by a user -> an Arrow expression.

In:  Python-like text: `lang == 'en' and year >= 2020 and source not in ('a', 'b')`.
Out: Where: the columns it needs and the expression; nothing of the text is ever executed.
"""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow.compute as pc

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], pc.Expression]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
HELP = "use comparisons (==, !=, <, <=, >, >=, in, not in, is None) joined by and, or, not"


@dataclass(frozen=True, slots=True)
class Where:
    """Which rows of a corpus belong to a job."""

    text: str
    columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.expression()
        names = {n.id for n in ast.walk(self._tree()) if isinstance(n, ast.Name)}
        object.__setattr__(self, "columns", tuple(sorted(names)))

    def expression(self) -> pc.Expression:
        try:
            return _condition(self._tree())
        except (SyntaxError, TypeError) as error:
            raise ValueError(f"where {self.text!r} is not understood; {HELP}") from error

    def _tree(self) -> ast.expr:
        return ast.parse(_python_text(self.text.strip()), mode="eval").body


def _python_text(text: str) -> str:
    """SQL's single = as Python's ==, outside of quotes."""
    pieces = re.split(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", text)
    pieces[::2] = [re.sub(r"(?<![<>=!])=(?!=)", "==", piece) for piece in pieces[::2]]
    return "".join(pieces)


def _condition(node: ast.expr) -> pc.Expression:
    match node:
        case ast.BoolOp(op=op, values=values):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            return reduce(join, [_condition(value) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_condition(operand)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            lefts = [left, *rights[:-1]]
            pairs = zip(lefts, ops, rights, strict=True)
            return reduce(operator.and_, [_comparison(*pair) for pair in pairs])
        case ast.Name():
            return _operand(node)
    raise TypeError(ast.dump(node))


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
    if isinstance(op, ast.In | ast.NotIn):
        found = _operand(left).isin(ast.literal_eval(right))
        return found if isinstance(op, ast.In) else ~found
    if isinstance(op, ast.Is | ast.IsNot):
        if not (isinstance(right, ast.Constant) and right.value is None):
            raise TypeError("is stands before None alone")
        missing = _operand(left).is_null()
        return missing if isinstance(op, ast.Is) else ~missing
    if type(op) not in COMPARISONS:
        raise TypeError(ast.dump(op))
    return COMPARISONS[type(op)](_operand(left), _operand(right))


def _operand(node: ast.expr) -> pc.Expression:
    if isinstance(node, ast.Name):
        return pc.field(node.id)
    try:
        return pc.scalar(ast.literal_eval(node))
    except ValueError as error:
        raise TypeError(ast.dump(node)) from error
