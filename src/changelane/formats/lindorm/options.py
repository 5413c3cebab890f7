# SPDX-License-Identifier: Apache-2.0
"""The options of ``lindorm-json``."""

from enum import StrEnum

import msgspec


class TableKind(StrEnum):
    """The kind of the tables, which messages do not contain."""

    AUTO = "auto"
    """HBase if a row has the column ``ROW`` and all its values are Base64 text, else SQL."""
    SQL = "sql"
    HBASE = "hbase"


class SchemaBlock(StrEnum):
    """The ``schema`` of messages."""

    FULL = "full"
    """Generated from the payload."""
    EMPTY = "empty"
    """``{}``, as in the documented samples."""
    NONE = "none"
    """No field ``schema``."""


class Order(StrEnum):
    """The order of the changes of a key."""

    SOURCE_TIME = "source_time"
    """``source.ts_ms``, then the message's offset: Lindorm sends no other position."""
    OFFSET = "offset"
    """The offset in the partition, for topics that keep the order of changes."""


class AbsentAfter(StrEnum):
    """The interpretation of a column that is missing in an update without before image."""

    NULL = "null"
    UNCHANGED = "unchanged"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``lindorm-json``.

    Attributes:
        tables: The kind of the tables.
        split_families: Name the columns of HBase tables ``family:qualifier`` instead of
            ``family_qualifier``.
        families: Table name (or its last parts) -> its column families, for names with more than
            one ``_``; without it, the family ends at the first ``_``.
        keys: Table name (or its last parts) -> key columns, for messages without key.
        absent_after: The interpretation of a column that is missing in an update without before
            image.
        order: The order of the changes of a key.
        schema: The schema block of messages.
        version: ``source.version`` for events without one; empty = ``v1.0`` for SQL tables and
            ``v2.0`` for HBase tables.
    """

    tables: TableKind = TableKind.AUTO
    split_families: bool = False
    families: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    absent_after: AbsentAfter = AbsentAfter.NULL
    order: Order = Order.SOURCE_TIME
    schema: SchemaBlock = SchemaBlock.FULL
    version: str = ""
