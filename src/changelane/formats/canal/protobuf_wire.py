# SPDX-License-Identifier: Apache-2.0
"""The messages of Canal in Protocol Buffers, with the names of their fields.

Source: the files ``CanalProtocol.proto`` and ``EntryProtocol.proto`` of Canal.
"""

from typing import Final

from changelane.formats.contract.protobuf import Kind, Table

_ONE, _MANY = False, True

PACKET: Final = Table(
    (1, "magic_number", Kind.INTEGER, _ONE),
    (2, "version", Kind.INTEGER, _ONE),
    (3, "type", Kind.INTEGER, _ONE),
    (4, "compression", Kind.INTEGER, _ONE),
    (5, "body", Kind.BYTES, _ONE),
)
MESSAGES: Final = Table(
    (1, "batch_id", Kind.INTEGER, _ONE),
    (2, "messages", Kind.BYTES, _MANY),
)
ENTRY: Final = Table(
    (1, "header", Kind.BYTES, _ONE),
    (2, "entryType", Kind.INTEGER, _ONE),
    (3, "storeValue", Kind.BYTES, _ONE),
)
HEADER: Final = Table(
    (1, "version", Kind.INTEGER, _ONE),
    (2, "logfileName", Kind.TEXT, _ONE),
    (3, "logfileOffset", Kind.INTEGER, _ONE),
    (4, "serverId", Kind.INTEGER, _ONE),
    (5, "serverenCode", Kind.TEXT, _ONE),
    (6, "executeTime", Kind.INTEGER, _ONE),
    (7, "sourceType", Kind.INTEGER, _ONE),
    (8, "schemaName", Kind.TEXT, _ONE),
    (9, "tableName", Kind.TEXT, _ONE),
    (10, "eventLength", Kind.INTEGER, _ONE),
    (11, "eventType", Kind.INTEGER, _ONE),
    (12, "props", Kind.BYTES, _MANY),
    (13, "gtid", Kind.TEXT, _ONE),
)
PAIR: Final = Table((1, "key", Kind.TEXT, _ONE), (2, "value", Kind.TEXT, _ONE))
ROW_CHANGE: Final = Table(
    (1, "tableId", Kind.INTEGER, _ONE),
    (2, "eventType", Kind.INTEGER, _ONE),
    (10, "isDdl", Kind.BOOLEAN, _ONE),
    (11, "sql", Kind.TEXT, _ONE),
    (12, "rowDatas", Kind.BYTES, _MANY),
    (13, "props", Kind.BYTES, _MANY),
    (14, "ddlSchemaName", Kind.TEXT, _ONE),
)
ROW_DATA: Final = Table(
    (1, "beforeColumns", Kind.BYTES, _MANY),
    (2, "afterColumns", Kind.BYTES, _MANY),
    (3, "props", Kind.BYTES, _MANY),
)
COLUMN: Final = Table(
    (1, "index", Kind.INTEGER, _ONE),
    (2, "sqlType", Kind.INTEGER, _ONE),
    (3, "name", Kind.TEXT, _ONE),
    (4, "isKey", Kind.BOOLEAN, _ONE),
    (5, "updated", Kind.BOOLEAN, _ONE),
    (6, "isNull", Kind.BOOLEAN, _ONE),
    (7, "props", Kind.BYTES, _MANY),
    (8, "value", Kind.TEXT, _ONE),
    (9, "length", Kind.INTEGER, _ONE),
    (10, "mysqlType", Kind.TEXT, _ONE),
)
TRANSACTION: Final = Table(
    (1, "executeTime", Kind.INTEGER, _ONE),
    (2, "transactionId", Kind.TEXT, _ONE),
    (3, "props", Kind.BYTES, _MANY),
    (4, "threadId", Kind.INTEGER, _ONE),
)
"""``TransactionBegin``; ``TransactionEnd`` has no ``threadId``."""
