# SPDX-License-Identifier: Apache-2.0
"""The tables of a snapshot of MySQL or MariaDB, their chunks, and the queries that read them.

Bounds of chunks are keys that the server returns in its own order: of collations, of unsigned and
composite keys. They are literals of SQL in the character set of their column, so that the server
compares them by the column's collation.
"""

import hashlib
import re
import string
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec

from changelane.capture.mysql.connection import Connection, database_errors, read_rows
from changelane.capture.mysql.sql_text import identifier, qualified
from changelane.capture.snapshot.plan import KeyColumn, SnapshotChunk, SnapshotTable, divided
from changelane.errors import ConfigError
from changelane.schema import TableId

ValueKind = Literal[
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "datetime",
    "instant",
    "duration",
    "year",
    "bits",
    "bytes",
    "text",
]
"""The Java value that the reader of the log makes of a column."""


class ColumnValue(NamedTuple):
    """How a column is read.

    Attributes:
        kind: What the reader makes of the value.
        expression: The expression of SQL, with ``{0}`` for the column.
    """

    kind: ValueKind
    expression: str = "{0}"


# A date with a zero in it is NULL in the log, as Debezium reads it.
_DATE: Final = "if(year({0}) = 0 OR month({0}) = 0 OR dayofmonth({0}) = 0, NULL, {0})"
_BYTES: Final = ColumnValue("bytes", "cast({0} AS binary)")
_GEOMETRY: Final = ColumnValue("bytes")
# The log has the bytes of a text in the character set of its column, the index of an ENUM, the bits
# of a SET, all bits of a FLOAT, which its text has not, and 1900 for the year 0.
_VALUES: Final[dict[str, ColumnValue]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int"), ColumnValue("integer")),
    "bigint": ColumnValue("long", "cast({0} AS signed)"),
    "float": ColumnValue("float", "{0} * 1e0"),
    "double": ColumnValue("double", "{0} * 1e0"),
    "decimal": ColumnValue("decimal"),
    "date": ColumnValue("date", f"cast({_DATE} AS char)"),
    "datetime": ColumnValue("datetime", f"replace(cast({_DATE} AS char), ' ', 'T')"),
    "timestamp": ColumnValue("instant", "cast(unix_timestamp({0}) * 1000000 AS signed)"),
    "time": ColumnValue("duration", "cast({0} AS char)"),
    "year": ColumnValue("year", "if({0} = 0, 1900, cast({0} AS unsigned))"),
    "enum": ColumnValue("integer", "cast({0} AS unsigned)"),
    "set": ColumnValue("long", "cast({0} AS signed)"),
    "bit": ColumnValue("bits", "cast({0} AS signed)"),
    **dict.fromkeys(("char", "varchar", "binary", "varbinary"), _BYTES),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), _BYTES),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint"), _GEOMETRY),
    **dict.fromkeys(("multilinestring", "multipolygon"), _GEOMETRY),
    **dict.fromkeys(("geometrycollection", "geomcollection"), _GEOMETRY),
    "json": ColumnValue("text", "cast({0} AS char)"),
    "uuid": ColumnValue("bytes", "cast({0} AS binary)"),
}
_NUMBERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"}
)
_TIMES: Final = frozenset({"date", "datetime", "timestamp", "time"})
_CHARACTERS: Final = frozenset({"char", "varchar"})
_BINARIES: Final = frozenset({"binary", "varbinary"})
TEXT_SETTING: Final = "SET SESSION sql_mode = ''"
"""The setting with which the definition of a table is the same text for every login, and zero dates
of keys can be compared."""
_AUTO_INCREMENT: Final = re.compile(r" AUTO_INCREMENT=[0-9]+")

_COLUMNS: Final = """
SELECT table_name, column_name, data_type, coalesce(character_set_name, '')
FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position
"""
# A key on a part of a column, or on an expression, is none: the log's keys have whole columns.
_KEYS: Final = """
SELECT table_name, index_name, group_concat(column_name ORDER BY seq_in_index SEPARATOR '\n')
FROM information_schema.statistics WHERE table_schema = %s AND non_unique = 0
GROUP BY table_name, index_name
HAVING max(coalesce(nullable, '') = 'YES') = 0 AND max(column_name IS NULL) = 0
  AND max(sub_part IS NOT NULL) = 0
ORDER BY table_name, index_name <> 'PRIMARY', index_name
"""
_ROW_BYTES: Final = """
SELECT table_name, coalesce(avg_row_length, 0)
FROM information_schema.tables WHERE table_schema = %s
"""


def column_value(data_type: str) -> ColumnValue:
    """Return how a column of a type is read.

    Raises:
        KeyError: The type is unknown.
    """
    return _VALUES[data_type]


def definition_statement(database: str, name: str) -> str:
    """Return the statement that shows the definition of a table, in its second column."""
    return f"SHOW CREATE TABLE {qualified(database, name)}"


def version_of(definition: str) -> str:
    """Return a digest of the definition of a table."""
    unnumbered = _AUTO_INCREMENT.sub("", definition)  # it changes with rows
    return hashlib.sha256(unnumbered.encode()).hexdigest()


def _table_version(connection: Connection, database: str, name: str) -> str:
    with database_errors(f"the definition of table {identifier(name)}"):
        read_rows(connection, TEXT_SETTING)
        return version_of(str(read_rows(connection, definition_statement(database, name))[0][1]))


def database_version(connection: Connection, database: str) -> str:
    """Return a digest of the definitions of all tables of a database."""
    with database_errors("the check of the tables"):
        rows = read_rows(
            connection,
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = %s AND table_type = 'BASE TABLE' ORDER BY table_name",
            database,
        )
    versions = [f"{name} {_table_version(connection, database, name)}" for (name,) in rows]
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()


def snapshot_tables(
    connection: Connection, database: str, table_ids: Sequence[TableId]
) -> tuple[SnapshotTable, ...]:
    """Return the tables of a snapshot.

    Args:
        connection: A connection with autocommit.
        database: The database.
        table_ids: The captured tables.

    Raises:
        ConfigError: A column has a type that the readers do not know.
    """
    with database_errors("the check of the tables"):
        read_rows(connection, "SET SESSION group_concat_max_len = 1000000")
        columns: dict[str, list[tuple[str, str, str]]] = {}
        for table, *column in read_rows(connection, _COLUMNS, database):
            columns.setdefault(table, []).append((column[0], column[1].lower(), column[2]))
        keys: dict[str, tuple[str, list[str]]] = {}
        for table, index, names in read_rows(connection, _KEYS, database):
            keys.setdefault(table, (index, str(names).split("\n")))
        row_bytes = {name: int(size) for name, size in read_rows(connection, _ROW_BYTES, database)}
    return tuple(
        _snapshot_table(
            TableId(database, None, name),
            columns.get(name, []),
            keys.get(name, ("", [])),
            row_bytes=row_bytes.get(name, 0),
            version=_table_version(connection, database, name),
        )
        for name in (table_id.name or "" for table_id in table_ids)
    )


def _snapshot_table(
    table_id: TableId,
    columns: Sequence[tuple[str, str, str]],
    key: tuple[str, Sequence[str]],
    *,
    row_bytes: int,
    version: str,
) -> SnapshotTable:
    database, name = table_id.database or "", table_id.name or ""
    for column, data_type, _ in columns:
        if data_type not in _VALUES:
            raise ConfigError(
                f"the column {column} of {database}.{name} has the type {data_type}, which "
                "snapshot: spark cannot read: use engine"
            )
    by_name = {column: (data_type, charset) for column, data_type, charset in columns}
    index, key_names = key
    return SnapshotTable(
        schema=database,
        name=name,
        columns=tuple(by_name),
        types=tuple(data_type for data_type, _ in by_name.values()),
        key=tuple(_key_column(column, *by_name[column]) for column in key_names),
        index=index,
        row_bytes=row_bytes,
        version=version,
        is_continuable=bool(key_names),
    )


def _key_column(name: str, data_type: str, charset: str) -> KeyColumn:
    # The order of the texts of an ENUM is not that of its index, and a FLOAT has no exact text.
    is_divisible = data_type in _NUMBERS | _TIMES | _CHARACTERS | _BINARIES
    is_text = data_type in _CHARACTERS
    return KeyColumn(name, f"{data_type} {charset}" if is_text else data_type, is_divisible)


_NUMBER_TEXT: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
_TIME_TEXT: Final = re.compile(r"-?[0-9][0-9 :.-]*", re.ASCII)


def in_key_range(
    planned_table: SnapshotTable, lower: Sequence[str], upper: Sequence[str]
) -> SnapshotTable:
    """Return a table with the rows of a range of keys only.

    Args:
        planned_table: The table.
        lower: The first values of the smallest key, as texts; empty = no bound.
        upper: The first values of the greatest key, which is part of the range.

    Raises:
        ConfigError: A text is no value of its column.

    >>> planned_table = SnapshotTable(schema="shop", name="t", columns=("a", "b"),
    ...     key=(KeyColumn("a", "int"), KeyColumn("b", "varchar latin1")), row_bytes=1, version="")
    >>> in_key_range(planned_table, ["5"], ["7", "it"]).key_range
    "`a` >= 5 AND (`a` <= 7 AND (`a` < 7 OR `b` <= _utf8mb4 x'6974'))"
    """
    names = [identifier(column.name) for column in planned_table.key]
    conditions = []
    for operator, bound in ((">=", lower), ("<=", upper)):
        if bound:
            literals = [
                _literal_of_text(column, text)
                for column, text in zip(planned_table.key, bound, strict=False)
            ]
            conditions.append(_comparison(names[: len(bound)], literals, operator))
    return msgspec.structs.replace(planned_table, key_range=" AND ".join(conditions))


def _literal_of_text(key_column: KeyColumn, text: str) -> str:
    """Return a text as a literal; bytes are hexadecimal digits.

    Raises:
        ConfigError: The text is no value of the column.
    """
    data_type = key_column.type.partition(" ")[0]
    for data_types, form in ((_NUMBERS, _NUMBER_TEXT), (_TIMES, _TIME_TEXT)):
        if data_type in data_types and form.fullmatch(text):
            return _literal(key_column, text)
    if data_type in _CHARACTERS:
        return f"_utf8mb4 x'{text.encode().hex()}'"
    if data_type in _BINARIES and len(text) % 2 == 0 and set(text) <= set(string.hexdigits):
        return _literal(key_column, text)
    raise ConfigError(f"a bound of the range is no value of {key_column.name} ({data_type})")


# -- chunks


def chunks_of(
    connection: Connection,
    planned_tables: Sequence[SnapshotTable],
    *,
    max_rows: int,
    max_bytes: int,
) -> tuple[SnapshotChunk, ...]:
    """Divide tables into chunks of about equal numbers of rows, whatever their keys are.

    Args:
        connection: A connection with autocommit.
        planned_tables: The tables of the plan.
        max_rows: The number of rows of a chunk.
        max_bytes: The approximate size of its rows, which may reduce their number.
    """
    with database_errors("the division of tables into chunks"):
        read_rows(connection, TEXT_SETTING)
    upper_bounds = partial(_upper_bounds, connection)
    return divided(planned_tables, upper_bounds, max_rows=max_rows, max_bytes=max_bytes)


def _upper_bounds(
    connection: Connection, planned_table: SnapshotTable, row_count: int
) -> Iterator[tuple[str, ...]]:
    """Yield the key of every n-th row, in the order of the key."""
    if not all(column.is_divisible for column in planned_table.key) or not planned_table.key:
        return
    names = ", ".join(identifier(column.name) for column in planned_table.key)
    texts = ", ".join(map(_bound_expression, planned_table.key))
    lower: tuple[str, ...] | None = None
    while True:
        statement = (
            f"SELECT {texts} FROM {_source(planned_table)}"  # noqa: S608 - quoted names
            f"{_where(planned_table, lower, None)} ORDER BY {names} LIMIT {row_count - 1}, 1"
        )
        with database_errors(f"the division of {planned_table.label} into chunks"):
            rows = read_rows(connection, statement)
        if not rows:
            return
        lower = tuple(map(_literal, planned_table.key, map(str, rows[0])))
        yield lower


def _bound_expression(key_column: KeyColumn) -> str:
    name = identifier(key_column.name)
    is_hex = key_column.type.partition(" ")[0] in _CHARACTERS | _BINARIES
    return f"hex({name})" if is_hex else f"cast({name} AS char)"


def _literal(key_column: KeyColumn, text: str) -> str:
    """Return a text of :func:`_bound_expression` as a literal.

    >>> _literal(KeyColumn("a", "varchar latin1"), "E4"), _literal(KeyColumn("a", "int"), "-5")
    ("_latin1 x'E4'", '-5')
    """
    data_type, _, charset = key_column.type.partition(" ")
    if data_type in _NUMBERS:
        return text
    if data_type in _TIMES:
        return f"'{text}'"
    return f"_{charset or 'binary'} x'{text}'"


def chunk_query(planned_table: SnapshotTable, chunk: SnapshotChunk) -> str:
    """Return the query for the rows of a chunk.

    >>> planned_table = SnapshotTable(schema="shop", name="t", columns=("a", "b"),
    ...     types=("int", "bigint"), key=(KeyColumn("a", "int"), KeyColumn("b", "bigint")),
    ...     index="PRIMARY", row_bytes=1, version="")
    >>> print(chunk_query(planned_table, SnapshotChunk(1, 0, ("5", "6"), None)))
    SELECT `a`, cast(`b` AS signed) FROM `shop`.`t` FORCE INDEX (`PRIMARY`) \
WHERE (`a` >= 5 AND (`a` > 5 OR `b` > 6))
    """
    values = ", ".join(
        column_value(data_type).expression.format(identifier(name))
        for name, data_type in zip(planned_table.columns, planned_table.types, strict=True)
    )
    where = _where(planned_table, chunk.lower, chunk.upper)
    return f"SELECT {values} FROM {_source(planned_table)}{where}"  # noqa: S608 - quoted


def _source(planned_table: SnapshotTable) -> str:
    # without it, the server may sort a whole table for each chunk
    index = f" FORCE INDEX ({identifier(planned_table.index)})" if planned_table.index else ""
    return qualified(planned_table.schema, planned_table.name) + index


def _where(
    planned_table: SnapshotTable, lower: tuple[str, ...] | None, upper: tuple[str, ...] | None
) -> str:
    names = [identifier(column.name) for column in planned_table.key]
    conditions = [planned_table.key_range]
    for bound, operator in ((lower, ">"), (upper, "<=")):
        if bound is not None:
            conditions.append(_comparison(names, bound, operator))
    text = " AND ".join(filter(None, conditions))
    return f" WHERE {text}" if text else ""


def _comparison(names: Sequence[str], bound: Sequence[str], operator: str) -> str:
    """Return the comparison of a key with a bound; the server uses no index for that of rows.

    >>> _comparison(["a", "b"], ["1", "2"], "<=")
    '(a <= 1 AND (a < 1 OR b <= 2))'
    """
    text = f"{names[-1]} {operator} {bound[-1]}"
    for name, value in zip(reversed(names[:-1]), reversed(bound[:-1]), strict=True):
        text = f"({name} {operator[0]}= {value} AND ({name} {operator[0]} {value} OR {text}))"
    return text
