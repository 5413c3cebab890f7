# SPDX-License-Identifier: Apache-2.0
"""Decodes source blocks: the producer of an event, its table, and its position.

:func:`read` decodes any block by its fields; :func:`read_postgres` and :func:`read_binlog` decode
the two common blocks faster, with the same result. Fields without a place in the model are returned
as :data:`OtherFields`, without nulls, so that a writer can write the block again.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import Key, Source
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.formats.debezium_envelope.rows.wire import MySqlSource, PostgresSource
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    Position,
    PostgresPosition,
    ScnPosition,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

_U64: Final = (1 << 64) - 1
_INT64: Final = 1 << 63

_PLACE: Final = ("version", "connector", "name", "snapshot", "db", "schema", "table")
_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
VITESS: Final = "vitess"
"""The product whose databases are keyspaces."""
_BINLOG_CONNECTORS: Final = ("mysql", "mariadb")

OtherFields = dict[str, object]
"""Fields of a source block without a place in the model."""


class KeyTemplate(msgspec.Struct, frozen=True, gc=False):
    """The form of the message key of a table's last row, if its columns are whole numbers.

    Attributes:
        columns: Gets the key's values from a row.
        pattern: The bytes of the message key, with ``%d`` for each number.
        plan: The plan of the row.
        key: The key columns.
    """

    columns: Callable[[Mapping[str, Any]], Any]
    pattern: bytes
    plan: object
    key: Key


class TableOrigin(msgspec.Struct):
    """The common part of the source blocks of one table, made once.

    Attributes:
        topic: Debezium's name of the topic, which is also the base of the schemas' names.
        other_fields: Forms of ``snapshot`` and ``connector`` that ``source`` does not keep.
        key_template: The form of the last key; it is checked against each key.
        declared: The plan and the key of the table in the option ``schemas``.
    """

    source: Source
    table: TableId
    topic: str
    other_fields: OtherFields
    key_template: KeyTemplate | None = None
    declared: tuple[RowPlan, Key | None] | None = None


@lru_cache(maxsize=4096)
def topic_of(source: Source, table: TableId) -> str:
    """Return Debezium's topic for a table."""
    parts: tuple[str | None, ...] = (source.server, table.schema or table.database, table.name)
    if source.product == "sqlserver":
        parts = (source.server, table.database, table.schema, table.name)
    return sanitised(".".join(part for part in parts if part))


_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9._-]")


def sanitised(name: str) -> str:
    """Return a name with only the characters that a topic's name may have.

    As ``AbstractTopicNamingStrategy`` does, it replaces each ``char`` of Java: a character beyond
    U+FFFF becomes two underscores.
    """
    return _UNSAFE.sub(lambda match: "__" if match[0] > "\uffff" else "_", name)[:249]


def instant(
    ms: int | None, us: int | None, ns: int | None
) -> tuple[int | None, OtherFields | None]:
    """Return a time in nanoseconds, and its three fields if they do not follow from it."""
    if ns is not None and us == ns // 1000 and ms == ns // 1_000_000:
        return ns, None
    stored: OtherFields = {
        name: value for name, value in zip(_TIMES, (ms, us, ns), strict=True) if value is not None
    }
    if not stored:
        return None, None
    return (nanoseconds(ms, us) if ns is None else ns), stored


def nanoseconds(ms: int | None, us: int | None) -> int | None:
    """Return a time in nanoseconds from its fields in other units."""
    if us is not None:
        return us * 1000
    return None if ms is None else ms * 1_000_000


def read_postgres(block: PostgresSource) -> tuple[Position | None, OtherFields]:
    """Return the position and the other fields of a block of PostgreSQL."""
    other_fields: OtherFields = {}
    if (value := block.txId) is not None:
        other_fields["txId"] = value
    if (value := block.xmin) is not None:
        other_fields["xmin"] = value
    if (word := block.origin) is not None:
        other_fields["origin"] = word
    if (value := block.origin_lsn) is not None:
        other_fields["origin_lsn"] = value
    position, sequence = postgres_position(block), block.sequence
    if position is None:
        if block.lsn is not None:
            other_fields["lsn"] = block.lsn
        if sequence is not None:
            other_fields["sequence"] = sequence
    elif position.last_commit_lsn is None and sequence != f'[null,"{block.lsn}"]':
        other_fields["sequence"] = sequence
    return position, other_fields


def postgres_position(block: PostgresSource) -> PostgresPosition | None:
    """Return the position of a block of PostgreSQL.

    The sequence is ``["<last commit>","<lsn>"]``, or ``[null,"<lsn>"]``. A sequence of another form
    has no last commit.
    """
    lsn, sequence, last = block.lsn, block.sequence, None
    if lsn is None or not -_INT64 <= lsn <= _U64:
        return None
    if sequence is not None:
        try:
            last = int(sequence[2 : sequence.find('"', 2)])
        except ValueError:
            last = None
        if sequence != f'["{last}","{lsn}"]':
            last = None
    return PostgresPosition(lsn if lsn >= 0 else lsn + _U64 + 1, last)


def read_binlog(block: MySqlSource) -> tuple[Position | None, OtherFields]:
    """Return the position and the other fields of a block of MySQL or MariaDB."""
    other_fields: OtherFields = {}
    if block.server_id is not None:
        other_fields["server_id"] = block.server_id
    if block.thread is not None:
        other_fields["thread"] = block.thread
    if block.query is not None:
        other_fields["query"] = block.query
    if block.sequence is not None:
        other_fields["sequence"] = block.sequence
    position = binlog_position(block)
    if position is not None:
        return position, other_fields
    for name in ("file", "pos", "row", "gtid"):
        value = getattr(block, name)
        if value is not None:
            other_fields[name] = value
    return None, other_fields


def binlog_position(block: MySqlSource) -> MySqlPosition | None:
    """Return the position of a block of MySQL or MariaDB."""
    if block.file and block.pos is not None and block.row is not None:
        return MySqlPosition(block.file, block.pos, block.row, block.gtid)
    return None


def read(fields: Mapping[str, Any]) -> tuple[Position | None, OtherFields]:
    """Return the position and the other fields of any block.

    Raises:
        DecodeError: A coordinate is not of its type.
    """
    other_fields: OtherFields = {
        name: value
        for name, value in fields.items()
        if value is not None and name not in _PLACE and name not in _TIMES
    }
    connector = fields.get("connector")
    if connector == "postgresql" or ("lsn" in fields and "file" not in fields):
        return _postgres(other_fields), other_fields
    if connector in _BINLOG_CONNECTORS or ("file" in fields and "pos" in fields):
        return _binlog(other_fields), other_fields
    if "scn" in fields:
        return _scn(other_fields), other_fields
    if "commit_lsn" in fields or "change_lsn" in fields:
        return _lsn(other_fields), other_fields
    return None, other_fields


_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)


def integer(value: object, path: str) -> int | None:
    """Return a whole number, which may be text.

    Raises:
        DecodeError: The value is not a whole number.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and len(value) <= 20:
        # most numbers need no pattern
        is_usual = value.isdecimal() and value.isascii()
        if is_usual or _INTEGER.fullmatch(value):
            return int(value)
    raise DecodeError("not a whole number", code=ReasonCode.WRONG_TYPE, path=path)


def text(value: object, path: str) -> str | None:
    """Return a text.

    Raises:
        DecodeError: The value is not a text.
    """
    if value is None or isinstance(value, str):
        return value
    raise DecodeError("not a text", code=ReasonCode.WRONG_TYPE, path=path)


def _postgres(other_fields: OtherFields) -> Position | None:
    position_fields = {
        name: integer(other_fields.pop(name, None), f"$.source.{name}")
        for name in ("txId", "lsn", "xmin", "origin_lsn")
    }
    block = PostgresSource(
        origin=text(other_fields.pop("origin", None), "$.source.origin"),
        sequence=text(other_fields.pop("sequence", None), "$.source.sequence"),
        **position_fields,  # type: ignore[arg-type]
    )
    position, extra_fields = read_postgres(block)
    row = other_fields.get("row")
    if position is not None and isinstance(row, int):
        position = msgspec.structs.replace(position, row=other_fields.pop("row"))
    other_fields.update(extra_fields)
    return position


def _binlog(other_fields: OtherFields) -> Position | None:
    position_fields = {
        name: integer(other_fields.pop(name, None), f"$.source.{name}")
        for name in ("server_id", "pos", "row", "thread")
    }
    texts = {
        name: text(other_fields.pop(name, None), f"$.source.{name}")
        for name in ("gtid", "file", "query", "sequence")
    }
    position, extra_fields = read_binlog(MySqlSource(**position_fields, **texts))  # type: ignore[arg-type]
    other_fields.update(extra_fields)
    return position


_DIGITS: Final = re.compile(r"0|[1-9]\d{0,38}", re.ASCII)


def _scn(other_fields: OtherFields) -> Position | None:
    numbers: dict[str, int] = {}
    for name in ("scn", "commit_scn"):
        value = other_fields.get(name)
        # a number before Debezium 1.5, text since
        if type(value) in {str, int} and _DIGITS.fullmatch(str(value)):
            numbers[name] = int(value)  # type: ignore[call-overload]
    if "scn" not in numbers:
        return None
    for name in numbers:
        del other_fields[name]
    rs_id = other_fields.get("rs_id")
    if isinstance(rs_id, str) and rs_id:
        del other_fields["rs_id"]
    else:
        rs_id = None
    # a zero is also the default of the position: then the field stays in the other fields
    ssn = integer(other_fields.get("ssn"), "$.source.ssn") or 0
    tx_seq = integer(other_fields.get("txSeq"), "$.source.txSeq") or 0
    if ssn:
        del other_fields["ssn"]
    if tx_seq:
        del other_fields["txSeq"]
    return ScnPosition(numbers["scn"], numbers.get("commit_scn"), rs_id, ssn, tx_seq)


def _lsn(other_fields: OtherFields) -> Position | None:
    commit = text(other_fields.get("commit_lsn"), "$.source.commit_lsn")
    if not commit:
        return None
    del other_fields["commit_lsn"]
    change = text(other_fields.pop("change_lsn", None), "$.source.change_lsn")
    serial = integer(other_fields.pop("event_serial_no", None), "$.source.event_serial_no")
    return LsnPosition(commit, change, serial)


def table_origin(fields: Mapping[str, Any]) -> TableOrigin:
    """Return the producer and the table of a source block.

    Raises:
        DecodeError: A field is not a text.
    """
    texts = {
        name: text(fields.get(name), f"$.source.{name}") for name in _PLACE if name != "snapshot"
    }
    snapshot = fields.get("snapshot")
    other_fields: OtherFields = {}
    if isinstance(snapshot, bool):
        other_fields["snapshot"] = snapshot
        snapshot = "true" if snapshot else None
    elif not isinstance(snapshot, str | None):
        raise DecodeError("not a text", code=ReasonCode.WRONG_TYPE, path="$.source.snapshot")
    elif snapshot == "false":
        snapshot = None
    product = texts["connector"]
    if product is not None and product != product.lower():
        other_fields["connector"] = product
        product = product.lower()
    source = Source(product, "debezium", texts["name"], texts["version"], snapshot)
    database = texts["db"]
    if product == VITESS:
        # Vitess: "db" is empty, in favour of the keyspace (VitessSourceInfoStructMaker)
        database = text(fields.get("keyspace"), "$.source.keyspace") or database
    table = TableId(database, texts["schema"], texts["table"])
    return TableOrigin(source, table, topic_of(source, table), other_fields)
