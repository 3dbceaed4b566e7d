"""`--where`: rows for which a comparison of columns with literals holds; nothing is evaluated.

The expression is parsed as Python and compared by Arrow. A column whose name is no plain word is
written in quotes on the left: `"How old are you?" >= 30`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from capelet.data.headers import Header
from capelet.errors import DataError, name_field

_COMPARE = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
# Longer ones are no comparison that a person wrote, and deep ones exhaust the parser's stack.
_LONGEST = 4_000
_BROKEN = (
    SyntaxError, ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError,
)  # fmt: skip


def filter_rows(table: pa.Table, where: str, header: Header) -> pa.Table:
    """The rows for which the expression holds."""
    complaint = DataError(
        f"{name_field('where')} is not understood; compare columns with literals, as in "
        "\"language == 'en' and age > 30\" or \"country in ['US', 'UK']\"; a name with blanks or "
        "signs is written in quotes, as in \"'How old?' >= 30\""
    )
    try:
        if len(where) > _LONGEST:
            raise complaint
        tree = ast.parse(where, mode="eval").body
        header = header.confirm(_names(tree))
        return table.filter(_compute(tree, table, header, complaint))
    except (*_BROKEN, pa.ArrowException):
        raise complaint from None


def _compute(node: ast.expr, table: pa.Table, header: Header, complaint: DataError) -> Any:
    match node:
        case ast.BoolOp(op=op, values=values):
            # Three-valued logic: a comparison with a missing value is neither true nor false.
            join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            result = _compute(values[0], table, header, complaint)
            for value in values[1:]:
                result = join(result, _compute(value, table, header, complaint))
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return pc.invert(_compute(operand, table, header, complaint))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            name = _name(left)
            if name is None:
                raise complaint
            if name not in table.column_names:
                raise DataError(
                    f"{name_field('where')} names a column {name!r}; {header.hint(name)}"
                )
            return _compare(table[name], operator, ast.literal_eval(right))
    raise complaint


def _compare(column: pa.ChunkedArray, operator: ast.cmpop, literal: Any) -> Any:
    if isinstance(operator, ast.In | ast.NotIn):
        # Typed like the column: a literal of another kind is refused, not silently unequal.
        inside = pc.is_in(column, pa.array(literal, type=column.type))
        if isinstance(operator, ast.In):
            return inside
        # `is_in` calls a missing value "not inside"; `not in` must not keep it.
        return pc.and_(pc.invert(inside), pc.is_valid(column))
    return _COMPARE[type(operator)](column, pa.scalar(literal))


def _name(node: ast.expr) -> str | None:
    """The column on the left: a plain word, or its name in quotes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _names(tree: ast.expr) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and (name := _name(node.left)) is not None:
            yield name
