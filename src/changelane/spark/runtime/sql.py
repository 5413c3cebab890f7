# SPDX-License-Identifier: Apache-2.0
"""Names in SQL and in paths: table and column names are untrusted input."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER: Final = "_changelane_order"
COLUMNS: Final = "_changelane_columns"

EMPTY_ORDER: Final = "unhex('')"
"""The order below every order, as SQL."""
NO_EXCEPTIONS: Final = "cast(map() AS map<string,binary>)"
"""The exceptions of a row whose columns share one order, as SQL."""

DELETED: Final = "_changelane_deleted"
"""With soft deletes: whether the row is deleted."""

UPSERTED: Final = "_changelane_upserted"
DEPARTED: Final = "_changelane_departed"
LIVE: Final = "_changelane_live"
"""The columns of a merge's source in addition to those of the table."""

JSON_OPTIONS: Final = {"ignoreNullFields": "true"}
"""The options of ``to_json`` for text that is stored or compared, whatever a session's defaults."""

_Literal = str | int | bytes | None

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_MAX_FOLDER: Final = 200
_HASH_DIGITS: Final = 32
"""128 bits, so that no two names with one hash can be found."""
_PLAIN_SHAPES: Final = {"001", "101", "111"}


def quoted(name: str) -> str:
    """Return a column's name, quoted for SQL and for ``F.col``.

    >>> quoted('a`; DROP TABLE b')
    '`a``; DROP TABLE b`'
    """
    return "`" + name.replace("`", "``") + "`"


def sql_literal(value: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal_rows(
    spark: "SparkSession", columns: Mapping[str, str], rows: Sequence[Sequence[_Literal]] = ()
) -> "DataFrame":
    """Return a DataFrame of a few values, which Spark's optimizer knows.

    ``createDataFrame`` runs a job through Python workers for rows of Python, and also for no rows.

    Args:
        spark: The session.
        columns: The types of the columns by name.
        rows: The values of each row in the order of the columns.
    """
    names = [f"c{index}" for index in range(len(columns))]
    values = [f"({', '.join(map(_value_literal, row))})" for row in rows]
    if not values:
        values = [f"({', '.join(['NULL'] * len(names))})"]
    casts = (
        f"CAST({name} AS {kind}) AS {quoted(column)}"
        for name, (column, kind) in zip(names, columns.items(), strict=True)
    )
    condition = "true" if rows else "false"
    return spark.sql(
        f"SELECT {', '.join(casts)} FROM VALUES {', '.join(values)} AS t({', '.join(names)}) "
        f"WHERE {condition}"
    )


def _value_literal(value: _Literal) -> str:
    if isinstance(value, str):
        return sql_literal(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "NULL" if value is None else str(value)


def folder_name(*parts: str | None, generation: str = "") -> str:
    """Return the folder name of a table: injective, and safe on any file system.

    Letters, digits, ``_`` and ``-`` stay. Every other byte becomes ``~`` and two hex digits, so
    that ``../../x`` stays inside its parent. Parts are joined with ``.``. A long name ends in
    ``~h`` and a hash, which is no escape because ``h`` is no hex digit.

    Args:
        parts: Database, schema and name; ``None`` = the source has no such level.
        generation: Distinguishes the table from an older table of the same name.

    >>> folder_name("shop", None, "../../x")
    'shop.~2E~2E~2F~2E~2E~2Fx'
    """
    name = ".".join("".join(map(_escape, part)) or "~" for part in parts if part is not None)
    shape = "".join("0" if part is None else "1" for part in parts)
    # of the names with the same number of parts only one shape needs no suffix
    if shape not in _PLAIN_SHAPES:
        name += "~p" + shape
    if generation:
        name += "~g" + generation
    if len(name) <= _MAX_FOLDER:
        return name
    mark = "~h" + hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return name[: _MAX_FOLDER - len(mark)] + mark


def _escape(character: str) -> str:
    if _PLAIN.match(character):
        return character
    return "".join(f"~{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
