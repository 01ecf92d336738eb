"""A condition written by a user -> which rows of a table fulfil it.

In:  Python-like text: `lang == 'en' and year >= 2020 and source not in ('a', 'b')`. SQL's `=`, `<>`
     and doubled quotes are understood, too.
Out: Where: the columns it needs and a mask of rows; nothing of the text is ever executed.

Nulls are SQL's: a comparison with a null is neither true nor false, `not` leaves it so, and only
rows for which the whole is true are taken. So neither `lang == 'en'` nor `lang != 'en'`, neither
`lang in ('en', 'de')` nor `lang not in ('en', 'de')` takes a row without a lang; `lang is None`
does. `== None` and `!= None` are `is None` and `is not None`.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], pc.Expression]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
NEITHER = pc.scalar(pa.scalar(None, pa.bool_()))  # true nor false
QUOTED = re.compile(r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""", re.DOTALL)
DOUBLED = re.compile(r'\\.|\'\'|""', re.DOTALL)
HELP = (
    "use comparisons of columns with values (==, !=, <, <=, >, >=, in ('a', 'b'), not in, is None) "
    "joined by and, or, not"
)


class _NotUnderstoodError(Exception):
    """Text that is no condition."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which rows of a table are meant."""

    text: str
    columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.expression()
        names = {n.id for n in ast.walk(_tree(self.text)) if isinstance(n, ast.Name)}
        object.__setattr__(self, "columns", tuple(sorted(names)))

    def mask(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], what: str) -> np.ndarray:
        """True for each row that fulfils the condition. what: named where the columns do not fit.

        The columns enter a table of their own, so that no name of theirs meets another.
        """
        own = {name: _plain(columns[name]) for name in self.columns}
        nulls = {name for name, column in own.items() if pa.types.is_null(column.type)}
        steps = [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table(own))),
            acero.Declaration("project", acero.ProjectNodeOptions([self.expression(nulls)], ["_"])),
        ]
        try:
            found = acero.Declaration.from_sequence(steps).to_table(use_threads=False).column(0)
            if not pa.types.is_boolean(found.type):
                raise pa.ArrowTypeError(f"it is {found.type}, not true or false")
        except pa.ArrowException as error:
            kinds = ", ".join(f"{name} is {column.type}" for name, column in own.items())
            raise ValueError(
                f"{what} {self.text!r} does not fit the columns ({kinds}): "
                f"{str(error).splitlines()[0]}; compare text with quoted text, numbers with numbers"
            ) from None
        return pc.fill_null(found, False).to_numpy()

    def expression(self, null_columns: Collection[str] = ()) -> pc.Expression:
        """null_columns: those without a type, which are in no list of values."""
        try:
            return _Reader(null_columns).condition(_tree(self.text))
        except (_NotUnderstoodError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = f" ({error})" if isinstance(error, _NotUnderstoodError) else ""
            raise ValueError(
                f"condition {self.text!r} is not understood{reason}; {HELP}"
            ) from error


def _tree(text: str) -> ast.expr:
    return ast.parse(_python_text(text.strip()), mode="eval").body


def _python_text(text: str) -> str:
    """SQL's =, <> and doubled quotes as Python writes them."""
    pieces = QUOTED.split(text)  # bare, quoted, bare, quoted ... bare
    for n in range(0, len(pieces), 2):
        if 0 < n < len(pieces) - 1 and not pieces[n].strip():
            raise _NotUnderstoodError(f"{pieces[n - 1]} and {pieces[n + 1]} stand side by side")
        if "#" in pieces[n]:
            raise _NotUnderstoodError("# is no part of a name here")
        bare = pieces[n].replace("<>", "!=")
        pieces[n] = re.sub(r"(?<![<>=!])=(?!=)", "==", bare)
    pieces[1::2] = [f"{p[0]}{_escaped(p[1:-1], p[0])}{p[0]}" for p in pieces[1::2]]
    return "".join(pieces)


def _escaped(inner: str, quote: str) -> str:
    """it''s as it\\'s."""
    return DOUBLED.sub(lambda m: f"\\{quote}" if m[0] == 2 * quote else m[0], inner)


class _Reader:
    """The tree of a text -> an expression."""

    def __init__(self, null_columns: Collection[str]) -> None:
        self._null_columns = null_columns

    def condition(self, node: ast.expr) -> pc.Expression:
        match node:
            case ast.BoolOp(op=op, values=values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return reduce(join, [self.condition(value) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self.condition(operand)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                lefts = [left, *rights[:-1]]
                pairs = zip(lefts, ops, rights, strict=True)
                return reduce(operator.and_, [self._comparison(*pair) for pair in pairs])
            case ast.Name(id=name):
                return NEITHER if name in self._null_columns else pc.field(name)
        raise _NotUnderstoodError(f"{ast.unparse(node)} compares nothing")

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        if not (isinstance(left, ast.Name) or isinstance(right, ast.Name)):
            raise _NotUnderstoodError(f"{ast.unparse(left)} and what it meets are no columns")
        if isinstance(op, ast.In | ast.NotIn):
            found = self._membership(left, right)
            return found if isinstance(op, ast.In) else ~found
        if isinstance(op, ast.Eq | ast.Is) and (_is_none(left) or _is_none(right)):
            return _operand(right if _is_none(left) else left).is_null()
        if isinstance(op, ast.NotEq | ast.IsNot) and (_is_none(left) or _is_none(right)):
            return ~_operand(right if _is_none(left) else left).is_null()
        if type(op) not in COMPARISONS:
            raise _NotUnderstoodError("is stands before None alone")
        return COMPARISONS[type(op)](_operand(left), _operand(right))

    def _membership(self, left: ast.expr, right: ast.expr) -> pc.Expression:
        if not isinstance(left, ast.Name):
            raise _NotUnderstoodError("in stands behind a column")
        items = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
        values = [_value(item) for item in items]
        if not values:
            raise _NotUnderstoodError("in () names no value")
        try:
            listed = pa.array(values)
        except pa.ArrowException:
            raise _NotUnderstoodError("values of one list are of one kind") from None
        if left.id in self._null_columns:
            return NEITHER
        column = pc.field(left.id)
        # The comparison is null where the column is, and refuses values of another kind, which
        # the list alone would try to convert.
        has_value = (column == pc.scalar(values[0])).is_valid()
        return pc.if_else(has_value, column.isin(listed), NEITHER)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _operand(node: ast.expr) -> pc.Expression:
    return pc.field(node.id) if isinstance(node, ast.Name) else pc.scalar(_value(node))


def _value(node: ast.expr) -> str | bytes | bool | int | float:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    if not isinstance(value, str | bytes | bool | int | float):
        raise _NotUnderstoodError(f"{ast.unparse(node)} is no text and no number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _NotUnderstoodError(f"{value} is too large a number")
    return value


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
