# SPDX-License-Identifier: Apache-2.0
"""The canonical text of a value: what the types of every source have in common. Pure.

Equal values have equal texts, and different values different ones. A pair of types without such a
text is not compared: the report names the column.
"""

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

DECIMAL: Final = "decimal("
"""The beginning of Spark's types of decimals."""
INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
"""Spark's types of integers."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class CanonicalText(NamedTuple):
    """The canonical text of a column, as SQL with ``{}`` in place of the column.

    Attributes:
        source: The SQL of the source.
        lake: The SQL of Spark.
    """

    source: str
    lake: str


class RangeTexts(NamedTuple):
    """What orders a key column on both sides.

    Attributes:
        source: The SQL of the source that orders it, with ``{}`` in place of the column.
        lake: The type in which Spark compares it: it orders texts by their bytes.
        bound: The SQL of the source for a value to compare it with, with ``{}`` in place of its
            text as a literal.
    """

    source: str
    lake: str
    bound: str = "{}"


KeyText = Callable[[Any], str]
"""Returns the canonical text of a value of a tombstone's key."""


class ColumnType(Protocol):
    """The type of a column at the source."""

    @property
    def shown(self) -> str:
        """The type for people."""
        ...

    @property
    def key_cast(self) -> str | None:
        """The SQL of a value whose rows an index finds, with ``{}`` in place of its canonical text.

        ``None`` = canonical texts of the type have no such SQL.
        """
        ...

    @property
    def log_type(self) -> str | None:
        """Spark's type of a column with the values of the log; ``None`` = it is not known here."""
        ...

    def text(self, lake: str) -> CanonicalText | None:
        """Return the canonical text of a column; ``None`` = it cannot be compared exactly.

        Args:
            lake: Spark's type of the column of the lake, such as ``array<int>``.
        """
        ...

    def key_text(self, lake: str) -> KeyText | None:
        """Return the function for the values of a key; ``None`` = it cannot identify rows."""
        ...

    def range_texts(self, lake: str) -> RangeTexts | None:
        """Return what orders a key column; ``None`` = the sides have no equal order."""
        ...


def field_of(value_sql: str, text: str, string: str) -> str:
    """Return the SQL of a field: its text with its length in characters, or ``-`` for NULL.

    No two lists of values have the same fields one after the other.

    Args:
        value_sql: The SQL of the value.
        text: Its canonical text, with ``{}`` in place of the value.
        string: The name of the type of texts.
    """
    text_sql = text.replace("{}", value_sql)
    length = f"CAST(char_length({text_sql}) AS {string})"
    return f"CASE WHEN {value_sql} IS NULL THEN '-' ELSE {length} || ':' || {text_sql} END"


# -- the values of keys


def days_text(value: dt.date) -> str:
    """Return a date as its days since 1970."""
    return str((value - _EPOCH.date()).days)


def microseconds_text(value: dt.datetime) -> str:
    """Return a time, which is in UTC without a zone, as its microseconds since 1970."""
    moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return str((moment - _EPOCH) // dt.timedelta(microseconds=1))


def decimal_key_text(lake: str) -> KeyText:
    """Return the function for decimals.

    Args:
        lake: Spark's type of the column, such as ``decimal(10,2)``.
    """
    scale = scale_of(lake)
    return lambda value: f"{decimal.Decimal(value):.{scale}f}"


def scale_of(lake: str) -> int:
    """Return the scale of one of Spark's types of decimals."""
    return int(lake.rstrip(")").rpartition(",")[2])


def key_field(text: str) -> str:
    """Return the field of a value of a key, as SQL writes it on both sides."""
    return f"{len(text)}:{text}"


def values_of(fields: str) -> list[str | None]:
    """Return the texts of fields that follow each other.

    >>> values_of("1:7-0:")
    ['7', None, '']
    """
    values: list[str | None] = []
    while fields:
        if fields.startswith("-"):
            values.append(None)
            fields = fields[1:]
            continue
        length, _, after = fields.partition(":")
        values.append(after[: int(length)])
        fields = after[int(length) :]
    return values
