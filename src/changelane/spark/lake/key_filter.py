# SPDX-License-Identifier: Apache-2.0
"""Conditions on a table that the keys of a batch imply: no key matches a row that they exclude.

MERGE would otherwise read or shuffle the whole table. The condition may be true for other rows of
the table, too, but never false for a row with one of the keys. A key column takes part if its
values are the same in SQL as in the canonical keys: numbers without a fraction, texts, dates and
decimals. A merge checks the very rows that it reads the keys from against the condition
(:func:`merge_filtered`).
"""

import datetime as dt
import decimal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.apply import key_values
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.merge import Merge
from changelane.spark.runtime.sql import quoted, sql_literal

MAX_KEYS: Final = 5_000
"""The maximum number of keys: beyond it, planning with literals costs more than it saves."""
MAX_LENGTH: Final = 1_000_000
"""The maximum length of the condition in characters."""
MAX_PRUNED: Final = 200
"""Iceberg prunes files by lists of up to so many values; it also gets a range."""

_OUTSIDE: Final = "_changelane_outside: a key is not in the filter of its batch"
_NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})

Literal = Callable[[Any], str | None]


def _integer(suffix: str, bits: int) -> Literal:
    least, largest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def literal(value: Any) -> str | None:
        if type(value) is not int or not least < value <= largest:
            return None
        return f"{value}{suffix}"

    return literal


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value.isprintable():
        return None  # an unusual character may not survive the parser
    return sql_literal(value)


def _date(value: Any) -> str | None:
    # datetime is a date, too
    return f"DATE '{value.isoformat()}'" if type(value) is dt.date else None


def _decimal(kind: str) -> Literal:
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))

    def literal(value: Any) -> str | None:
        if type(value) is not int and not isinstance(value, decimal.Decimal):
            return None
        number = decimal.Decimal(value)
        exponent = number.as_tuple().exponent
        # an exponent that is a letter is that of NaN or an infinity
        if not isinstance(exponent, int) or exponent < -scale:
            return None
        if number and number.adjusted() >= precision - scale:
            return None
        return f"CAST('{number:f}' AS {kind})"

    return literal


_LITERALS: Final[Mapping[str, Literal]] = {
    "tinyint": _integer("Y", 8),
    "smallint": _integer("S", 16),
    "int": _integer("", 32),
    "bigint": _integer("L", 64),
    "string": _text,
    "date": _date,
}


class _Values(NamedTuple):
    """The values of one key column.

    Attributes:
        literals: The literals of the values.
        bounds: The literals of a lower and an upper bound of the values.
        has_null: Whether NULL is one of the values.
    """

    literals: tuple[str, ...]
    bounds: tuple[str, str]
    has_null: bool


class KeyFilter:
    """The condition that the keys of a batch imply.

    Args:
        columns: The values of each key column that takes part.
    """

    def __init__(self, columns: Mapping[str, _Values]) -> None:
        self._columns = columns

    def sql(self, alias: str = "") -> str:
        """Return the condition as SQL over the columns of *alias*, such as ``t``."""
        prefix = f"{alias}." if alias else ""
        return " AND ".join(
            _condition(f"{prefix}{quoted(name)}", values) for name, values in self._columns.items()
        )

    def checked(self, rows: DataFrame, aliases: Mapping[str, str] = _NO_ALIASES) -> DataFrame:
        """Return rows that fail a statement that reads a key outside of the filter.

        Such a key would be added although the table has it.

        Args:
            rows: Rows with the key columns.
            aliases: Key column -> its name in *rows*, if it has another one there.
        """
        kinds = dict(rows.dtypes)
        checked_keys = {}
        for key_column, values in self._columns.items():
            name = aliases.get(key_column, key_column)
            is_inside = _condition(quoted(name), values, has_range=False)
            failure = f"CAST(raise_error({sql_literal(_OUTSIDE)}) AS {kinds[name]})"
            checked_keys[name] = F.expr(
                f"CASE WHEN {is_inside} THEN {quoted(name)} ELSE {failure} END"
            )
        return rows.withColumns(checked_keys)


def filtered_rows(table: DataFrame, batch_keys: KeyFilter | None) -> DataFrame:
    """Return the rows of a table that a filter includes; ``None`` = all."""
    return table if batch_keys is None else table.where(batch_keys.sql())


SourceOf = Callable[[KeyFilter | None], DataFrame]
"""Returns the rows to merge; it reads only those rows of the table that a filter includes."""


def merge_filtered(
    lake: Lake,
    session: SparkSession,
    name: str,
    merge: Merge,
    *,
    batch_keys: KeyFilter | None,
    source_of: SourceOf,
) -> None:
    """Merge into a table; a source with a key outside of the filter is merged without it.

    Args:
        lake: The tables.
        session: The session of the commit.
        name: The table.
        merge: The merge.
        batch_keys: The filter that the keys of the batch imply; ``None`` = unknown.
        source_of: Returns the source. What it reads keys from, other than its rows, it checks
            itself (:meth:`KeyFilter.checked`).
    """
    if batch_keys is not None:
        filtered_merge = merge._replace(target_filter=batch_keys.sql("t"))
        try:
            source = batch_keys.checked(source_of(batch_keys))
            lake.merge(session, name, source, filtered_merge)
        except Exception as error:  # PySpark's and Py4J's have no common class: the text tells
            if _OUTSIDE not in str(error):
                raise
        else:
            return
    lake.merge(session, name, source_of(None), merge)


def _condition(column: str, values: _Values, *, has_range: bool = True) -> str:
    parts = []
    if values.literals:
        is_listed = f"{column} IN ({', '.join(values.literals)})"
        if has_range and len(values.literals) > MAX_PRUNED:
            lower, upper = values.bounds
            is_listed = f"({column} >= {lower} AND {column} <= {upper} AND {is_listed})"
        parts.append(is_listed)
    if values.has_null:
        parts.append(f"{column} IS NULL")
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


def key_filter(
    keys: Collection[str] | None, columns: Mapping[str, str], key_columns: Sequence[str]
) -> KeyFilter | None:
    """Return the filter of the keys of a batch; ``None`` = no condition is known.

    Args:
        keys: Canonical keys; ``None`` = unknown.
        columns: The columns of the table, name -> Spark type.
        key_columns: The key columns.
    """
    if not keys or len(keys) > MAX_KEYS or not key_columns:
        return None
    rows = [key_values(key.encode()) for key in keys]
    if any(len(row) != len(key_columns) for row in rows):
        return None
    filters: dict[str, _Values] = {}
    for name, values in zip(key_columns, zip(*rows, strict=True), strict=True):
        kind = columns[name].lower()
        literal = _decimal(kind) if kind.startswith("decimal(") else _LITERALS.get(kind)
        column_values = None if literal is None else _values(values, literal)
        if column_values is not None:
            filters[name] = column_values
    length = sum(len(text) for column in filters.values() for text in column.literals)
    return KeyFilter(filters) if filters and length <= MAX_LENGTH else None


def _values(values: Iterable[Any], literal: Literal) -> _Values | None:
    """Return the literals of a column; ``None`` = a value has none."""
    literals: dict[Any, str] = {}
    has_null = False
    for value in values:
        if value is None:
            has_null = True
        elif (text := literal(value)) is None:
            return None
        else:
            literals[value] = text
    if not literals:
        return _Values((), ("", ""), has_null)
    ordered = sorted(literals)
    lower, upper = (
        literal(bound) or literals[value]
        for bound, value in zip(_bounds(ordered), (ordered[0], ordered[-1]), strict=True)
    )
    return _Values(tuple(literals[value] for value in ordered), (lower, upper), has_null)


def _bounds(ordered: Sequence[Any]) -> tuple[Any, Any]:
    """Return a lower and an upper bound of values; whole numbers are rounded.

    Spark compiles the bounds into its code of a statement. Rounded bounds are often those of the
    batch before, so that its code is used again.
    """
    first, last = ordered[0], ordered[-1]
    if type(first) is not int or type(last) is not int:
        return first, last
    step = 1 << max((last - first).bit_length() - 2, 0)
    return first // step * step, (last // step + 1) * step
