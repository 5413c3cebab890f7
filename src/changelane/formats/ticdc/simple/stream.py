# SPDX-License-Identifier: Apache-2.0
"""The messages of TiCDC's simple protocol in their order: earlier ones describe the tables of rows.

Messages of the type BOOTSTRAP, and those of statements, have the ``tableSchema`` of a version.
"""

from typing import Final

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, SchemaChange, Tombstone, Truncate
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.ticdc.simple.decode import Reader, load_message
from changelane.formats.ticdc.simple.tables import Table, Tables, Timestamps
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

_MAX_TABLES: Final = 4096


class Stream:
    """Decodes the messages of one stream in their order.

    Args:
        declared: The declared tables, for rows that no earlier message describes.
        timestamps: The reader of TIMESTAMP values.
        verifies: Rows of known tables are compared with their checksums.
    """

    def __init__(self, declared: Tables, timestamps: Timestamps, *, verifies: bool) -> None:
        self._declared = declared
        self._read = Reader(self._find, timestamps, verifies=verifies)
        self._described: BoundedCache[tuple[str | None, str | None], dict[int | None, Table]]
        self._described = BoundedCache(_MAX_TABLES)

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode the next message of the stream."""
        if message.value is None:
            return (Tombstone(TableId()),)
        event = self._read(message.value)
        if isinstance(event, SchemaChange | Truncate):
            self._add_table(message.value)
        return (event,)

    def _add_table(self, value: bytes) -> None:
        definition = load_message(value).tableSchema
        if definition is None:
            return
        name = definition.schema or None, definition.table or None
        versions = self._described.get(name)
        if versions is None:
            versions = self._described.add(name, {})
        if definition.version not in versions:  # BOOTSTRAP repeats what is known
            versions[definition.version] = self._read.table_of_definition(definition)

    def _find(self, database: str | None, table: str | None, version: int | None) -> Table | None:
        """Return a table at a version; ``None`` if no version of it is known.

        Raises:
            DecodeError: Other versions of the table are known.
        """
        versions = self._described.get((database, table)) or {}
        described = versions.get(version)
        if described is not None:
            return described
        declared = self._declared.find(database, table, version)
        if declared is None and versions:
            reason = "neither an earlier message nor table_schemas has this version of the table"
            code = ReasonCode.UNKNOWN_SCHEMA
            raise DecodeError(reason, code=code, path="$.schemaVersion")
        return declared
