"""Row filters: a condition written by a user, evaluated on Arrow columns.

In:  Python-like text: `lang == 'en' and year >= 2020 and source not in ('a', 'b')`. SQL's `=`, `<>`
     and doubled quotes are accepted, too.
Out: RowFilter: the columns it needs and a mask of rows. The text is parsed, never executed.

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

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from sbert_core.corpus.errors import IncompatibleTypes, InvalidCondition

COMPARISONS: dict[type[ast.cmpop], Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
NULL_BOOL = pc.scalar(pa.scalar(None, pa.bool_()))  # neither true nor false
QUOTED = re.compile(r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""", re.DOTALL)
DOUBLED = re.compile(r'\\.|\'\'|""', re.DOTALL)
SYNTAX_HELP = (
    "use comparisons of columns with values (==, !=, <, <=, >, >=, in ('a', 'b'), not in, is None) "
    "joined by and, or, not"
)


class _SyntaxRefused(Exception):
    """Text that is not a condition."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on columns. columns: those it needs. A ValueError for text outside the syntax."""

    text: str
    columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.expression()
        names = {n.id for n in ast.walk(_tree(self.text)) if isinstance(n, ast.Name)}
        object.__setattr__(self, "columns", tuple(sorted(names)))

    def mask(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], what: str) -> np.ndarray:
        """True for each row that fulfils the condition.

        columns: by name, at least those of the condition. what: begins the ValueError that is
        raised where types do not fit.
        """
        own = {name: _without_dictionary(columns[name]) for name in self.columns}
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
            types = {name: str(column.type) for name, column in own.items()}
            reason = str(error).splitlines()[0]
            raise IncompatibleTypes(what, self.text, types, reason) from None
        mask: np.ndarray = pc.fill_null(found, False).to_numpy()
        return mask

    def expression(self, null_columns: Collection[str] = ()) -> pc.Expression:
        """The condition for Arrow. null_columns: of type null, which match no list of values."""
        try:
            return _ExpressionBuilder(null_columns).condition(_tree(self.text))
        except (_SyntaxRefused, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = str(error) if isinstance(error, _SyntaxRefused) else ""
            raise InvalidCondition(self.text, reason, SYNTAX_HELP) from error


def _tree(text: str) -> ast.expr:
    return ast.parse(_to_python_syntax(text.strip()), mode="eval").body


def _to_python_syntax(text: str) -> str:
    """Replace SQL's =, <> and doubled quotes by Python's syntax."""
    pieces = QUOTED.split(text)  # bare, quoted, bare, quoted ... bare
    for n in range(0, len(pieces), 2):
        if 0 < n < len(pieces) - 1 and not pieces[n].strip():
            raise _SyntaxRefused(f"{pieces[n - 1]} and {pieces[n + 1]} stand side by side")
        if "#" in pieces[n]:
            raise _SyntaxRefused("# cannot be part of a name")
        bare = pieces[n].replace("<>", "!=")
        pieces[n] = re.sub(r"(?<![<>=!])=(?!=)", "==", bare)
    pieces[1::2] = [f"{p[0]}{_escape_doubled_quotes(p[1:-1], p[0])}{p[0]}" for p in pieces[1::2]]
    return "".join(pieces)


def _escape_doubled_quotes(inner: str, quote: str) -> str:
    r"""Replace it''s by it\'s."""
    return DOUBLED.sub(lambda m: f"\\{quote}" if m[0] == 2 * quote else m[0], inner)


class _ExpressionBuilder:
    """Builds an Arrow expression from the syntax tree of a condition."""

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
                return NULL_BOOL if name in self._null_columns else pc.field(name)
        raise _SyntaxRefused(f"{ast.unparse(node)} compares nothing")

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        if not (isinstance(left, ast.Name) or isinstance(right, ast.Name)):
            raise _SyntaxRefused(f"{ast.unparse(left)} and its counterpart are not columns")
        if isinstance(op, ast.In | ast.NotIn):
            found = self._membership(left, right)
            return found if isinstance(op, ast.In) else ~found
        if isinstance(op, ast.Eq | ast.Is) and (_is_none(left) or _is_none(right)):
            return _operand(right if _is_none(left) else left).is_null()
        if isinstance(op, ast.NotEq | ast.IsNot) and (_is_none(left) or _is_none(right)):
            return ~_operand(right if _is_none(left) else left).is_null()
        if type(op) not in COMPARISONS:
            raise _SyntaxRefused("is must be followed by None")
        return COMPARISONS[type(op)](_operand(left), _operand(right))

    def _membership(self, left: ast.expr, right: ast.expr) -> pc.Expression:
        if not isinstance(left, ast.Name):
            raise _SyntaxRefused("in must follow a column")
        items = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
        values = [_value(item) for item in items]
        if not values:
            raise _SyntaxRefused("in () names no value")
        try:
            listed = pa.array(values)
        except pa.ArrowException:
            raise _SyntaxRefused("values of one list are of one kind") from None
        if left.id in self._null_columns:
            return NULL_BOOL
        column = pc.field(left.id)
        # The comparison is null where the column is, and refuses values of another kind, which
        # the list alone would try to convert.
        has_value = (column == pc.scalar(values[0])).is_valid()
        return pc.if_else(has_value, column.isin(listed), NULL_BOOL)


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
        raise _SyntaxRefused(f"{ast.unparse(node)} is neither text nor a number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _SyntaxRefused(f"{value} is too large a number")
    return value


def _without_dictionary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
