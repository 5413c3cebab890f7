# SPDX-License-Identifier: Apache-2.0
"""The wire classes of StreamX JSON, with the producer's own names, and tables of its operations."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from changelane.event import Op

INSERT: Final = "INSERT"
UPDATE: Final = "UPDATE"
UPDATE_BEFORE: Final = "UPDATE_BEFOR"  # the producer's own spelling
UPDATE_AFTER: Final = "UPDATE_AFTER"
DELETE: Final = "DELETE"
TRUNCATE: Final = "TRUNCATE"
HEARTBEAT: Final = "MHEARTBEAT"

ROWS: Final[dict[str, tuple[Op, frozenset[str], frozenset[str]]]] = {
    INSERT: (Op.CREATE, frozenset({"after"}), frozenset({"after"})),
    UPDATE: (Op.UPDATE, frozenset({"after"}), frozenset({"before", "after"})),
    UPDATE_BEFORE: (Op.DELETE, frozenset({"before"}), frozenset({"before"})),
    "UPDATE_BEFORE": (Op.DELETE, frozenset({"before"}), frozenset({"before"})),
    UPDATE_AFTER: (Op.UPDATE, frozenset({"after"}), frozenset({"before", "after"})),
    DELETE: (Op.DELETE, frozenset({"before"}), frozenset({"before"})),
}
"""Operation -> op of a data change, required images, allowed images."""

ACTIONS: Final = {
    "CREATE": "create",
    "ALTER": "alter",
    "ERASE": "drop",
    "RENAME": "rename",
    "CINDEX": "create_index",
    "DINDEX": "drop_index",
    "QUERY": "other",
}
"""Operation -> action of a schema change."""

STATUSES: Final = {"TRANSACTION_BEGIN": "begin", "TRANSACTION_END": "commit"}

CONTROLS: Final = frozenset({"GTID", "XACOMMIT", "XAROLLBACK"})

OPERATIONS: Final = frozenset({*ROWS, *ACTIONS, *STATUSES, *CONTROLS, TRUNCATE, HEARTBEAT})

VERSION: Final = "0.0.1"

SPELLINGS: Final = {
    "mysql": "MySQL",
    "oceanbase": "OceanBase",
    "oracle": "Oracle",
    "postgresql": "PostgreSQL",
    "sqlserver": "SQLServer",
}
"""Product -> ``dbType``; case is ignored when reading (the document has both mysql and MySQL)."""


class ColumnPart(msgspec.Struct):
    """A column: its name, and one of the six types."""

    name: str
    type: str


class SourcePart(msgspec.Struct, omit_defaults=True):
    """The database and table that a message comes from."""

    dbName: str | None = None  # noqa: N815 - the producer's name
    dbType: str | None = None  # noqa: N815 - the producer's name
    dbVersion: str | None = None  # noqa: N815 - the producer's name
    schemaName: str | None = None  # noqa: N815 - the producer's name
    tableName: str | None = None  # noqa: N815 - the producer's name


class SchemaPart(msgspec.Struct, omit_defaults=True):
    """The description of a table in a message."""

    dataColumn: list[ColumnPart] | None = None  # noqa: N815 - the producer's name
    source: SourcePart | None = None
    primaryKey: list[str] | None = None  # noqa: N815 - the producer's name


class ImagePart(msgspec.Struct):
    """A before or after image."""

    dataColumn: dict[str, Any]  # noqa: N815 - the producer's name


class TimePart(msgspec.Struct, omit_defaults=True):
    """Times in milliseconds since 1970; a negative time is unknown."""

    eventTime: int  # noqa: N815 - the producer's name
    systemTime: int | None = None  # noqa: N815 - the producer's name
    checkpointTime: int | None = None  # noqa: N815 - the producer's name


class DdlPart(msgspec.Struct, omit_defaults=True):
    """A statement, and its parsed form as a serialised Java object in Base64."""

    text: str | None = None
    ddlMeta: str | None = None  # noqa: N815 - the producer's name


class Payload(msgspec.Struct, omit_defaults=True):
    """The operation with its images, times and statement."""

    op: str
    timestamp: TimePart
    before: ImagePart | None = None
    after: ImagePart | None = None
    sequenceId: str | int | None = None  # noqa: N815 - the producer's name
    ddl: DdlPart | None = None


class StreamxMessage(msgspec.Struct):
    """A message to read. *schema* stays raw: it repeats in each message and is parsed once."""

    payload: Payload
    schema: msgspec.Raw = msgspec.Raw()
    version: str | None = None


class WrittenPayload(msgspec.Struct, omit_defaults=True):
    """The payload of a message to write, in the order of the document's samples."""

    op: str
    before: ImagePart | UnsetType | None = UNSET
    after: ImagePart | UnsetType | None = UNSET
    sequenceId: str | UnsetType | None = UNSET  # noqa: N815 - the producer's name
    ddl: DdlPart | UnsetType | None = UNSET
    timestamp: TimePart | None = None


class NullParts(msgspec.Struct):
    """The parts of a payload, to find nulls among them."""

    payload: dict[str, msgspec.Raw]


class WrittenMessage(msgspec.Struct):
    """A message to write, in the order of the document's samples; empty parts are omitted."""

    schema: msgspec.Raw
    payload: WrittenPayload
    version: str
