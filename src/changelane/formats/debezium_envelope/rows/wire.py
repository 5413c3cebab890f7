# SPDX-License-Identifier: Apache-2.0
"""The messages as typed classes with the field names of Debezium.

The fast path reads these classes. A message with one more field, or with a field of another type,
is read field by field, so that other versions and forks of Debezium are read, too.
"""

from typing import Generic, TypeVar

import msgspec

Row = TypeVar("Row")


class _SourceHead(msgspec.Struct, tag_field="connector", forbid_unknown_fields=True, gc=False):
    """The first fields of each source block."""

    version: str | None = None
    name: str | None = None
    ts_ms: int | None = None
    snapshot: str | None = None
    db: str | None = None
    sequence: str | None = None
    ts_us: int | None = None
    ts_ns: int | None = None


class PostgresSource(_SourceHead, tag="postgresql", gc=False):
    """The source block of PostgreSQL."""

    schema: str | None = None
    table: str | None = None
    txId: int | None = None  # noqa: N815 - the name on the wire
    lsn: int | None = None
    xmin: int | None = None
    origin: str | None = None
    origin_lsn: int | None = None


class MySqlSource(_SourceHead, tag="mysql", gc=False):
    """The source block of MySQL."""

    table: str | None = None
    server_id: int | None = None
    gtid: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    thread: int | None = None
    query: str | None = None


class MariaDbSource(MySqlSource, tag="mariadb", gc=False):
    """The source block of MariaDB, which has the fields of MySQL's."""


class TransactionBlock(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The position of a row in its transaction."""

    id: str | None = None
    total_order: int | None = None
    data_collection_order: int | None = None


class Envelope(msgspec.Struct, Generic[Row], forbid_unknown_fields=True, gc=False):
    """A row change."""

    op: str
    source: PostgresSource | MySqlSource | MariaDbSource
    before: Row | None = None
    after: Row | None = None
    transaction: TransactionBlock | None = None
    ts_ms: int | None = None
    ts_us: int | None = None
    ts_ns: int | None = None


class TableColumn(msgspec.Struct):
    """A column of a table description."""

    name: str
    typeName: str | None = None  # noqa: N815 - the name on the wire
    typeExpression: str | None = None  # noqa: N815 - the name on the wire
    length: int | None = None
    scale: int | None = None
    optional: bool | None = None
    generated: bool | None = None
    enumValues: list[str] | None = None  # noqa: N815 - the name on the wire


class TableDescription(msgspec.Struct):
    """A table in a message of a schema change."""

    columns: list[TableColumn] = []
    primaryKeyColumnNames: list[str] | None = None  # noqa: N815 - the name on the wire


class TableChange(msgspec.Struct):
    """The change of one table by a DDL statement. The parts of *id* are quoted."""

    type: str
    id: str
    table: TableDescription | None = None
