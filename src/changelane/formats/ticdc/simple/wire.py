# SPDX-License-Identifier: Apache-2.0
"""The wire classes of TiCDC's simple protocol, with the producer's own names and order."""

from typing import Any

import msgspec

JsonRow = dict[str, Any]
"""A row: column -> text, null, a number, or an object with the zone of a TIMESTAMP."""


class Checksum(msgspec.Struct):
    """The checksums that TiDB stored with a row: after and before the change; 0 = none."""

    version: int = 0
    corrupted: bool = False
    current: int = 0
    previous: int = 0


class DataType(msgspec.Struct):
    """The type of a column; a parameter that is missing is zero, false or empty."""

    mysqlType: str  # noqa: N815 - the producer's name
    charset: str | None = None
    collate: str | None = None
    length: int = 0
    decimal: int = 0
    elements: list[str] | None = None
    unsigned: bool = False
    zerofill: bool = False


class ColumnDefinition(msgspec.Struct):
    """A column of a table."""

    name: str
    dataType: DataType  # noqa: N815 - the producer's name
    nullable: bool | None = None
    default: Any = None


class IndexDefinition(msgspec.Struct):
    """An index of a table."""

    name: str
    columns: list[str]
    unique: bool = False
    primary: bool = False
    nullable: bool = True


class TableDefinition(msgspec.Struct):
    """A table: columns in the order of their ids, and indexes. ``schema`` is its database."""

    columns: list[ColumnDefinition]
    schema: str | None = None
    table: str | None = None
    tableID: int | None = None  # noqa: N815 - the producer's name
    version: int | None = None
    indexes: list[IndexDefinition] | None = None


class SimpleMessage(msgspec.Struct, omit_defaults=True):
    """A message of any type."""

    type: str
    version: int
    database: str | None = None
    table: str | None = None
    tableID: int | None = None  # noqa: N815 - the producer's name
    sql: str | None = None
    commitTs: int | None = None  # noqa: N815 - the producer's name
    buildTs: int | None = None  # noqa: N815 - the producer's name
    schemaVersion: int | None = None  # noqa: N815 - the producer's name
    claimCheckLocation: str | None = None  # noqa: N815 - the producer's name
    handleKeyOnly: bool | None = None  # noqa: N815 - the producer's name
    checksum: Checksum | None = None
    data: JsonRow | None = None
    old: JsonRow | None = None
    tableSchema: TableDefinition | None = None  # noqa: N815 - the producer's name
    preTableSchema: TableDefinition | None = None  # noqa: N815 - the producer's name
