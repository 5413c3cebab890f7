# SPDX-License-Identifier: Apache-2.0
"""Messages of TiCDC's simple protocol to change events."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from changelane.ddl import action_of, table_of
from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    Image,
    KeyOrigin,
    Op,
    SchemaChange,
    Truncate,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.contract.tidb_time_stamps import position_of, time_ns
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.simple.avro import AVRO_STARTS, read_avro
from changelane.formats.ticdc.simple.tables import Table, Timestamps
from changelane.formats.ticdc.simple.wire import JsonRow, SimpleMessage, TableDefinition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

VERSION: Final = 1

OPERATIONS: Final[Mapping[str, Op]] = {
    "INSERT": Op.CREATE,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
}
ACTIONS: Final[Mapping[str, str]] = {
    "CREATE": "create",
    "RENAME": "rename",
    "CINDEX": "create_index",
    "DINDEX": "drop_index",
    "ERASE": "drop",
    "ALTER": "alter",
    "QUERY": "other",
}
"""The type of a message about a statement -> the action, if the statement does not determine it."""
TRUNCATE: Final = "TRUNCATE"
WATERMARK: Final = "WATERMARK"
BOOTSTRAP: Final = "BOOTSTRAP"
"""The type of a message that describes a table again, without a change."""
TYPES: Final = frozenset({*OPERATIONS, *ACTIONS, TRUNCATE, WATERMARK, BOOTSTRAP})

_AFTER_LAST_MS: Final = 253_402_300_800_000
"""The beginning of the year 10000."""
_MILLISECOND: Final = 1_000_000
_DROPS: Final = frozenset({"drop", "drop_database"})

Find = Callable[[str | None, str | None, int | None], Table | None]


class Reader:
    """Decodes messages.

    Args:
        find: Returns the table of a database, a name and a version; ``None`` if it is unknown.
        timestamps: The reader of TIMESTAMP values.
        verifies: Rows of known tables are compared with their checksums.
    """

    def __init__(self, find: Find, timestamps: Timestamps, *, verifies: bool) -> None:
        self.find = find
        self.timestamps = timestamps
        self.verifies = verifies

    def __call__(self, value: bytes) -> ChangeEvent:
        """Return the event of a message's value."""
        message = load_message(value)
        if message.version != VERSION:
            raise DecodeError("not version 1", code=ReasonCode.UNKNOWN_VERSION, path="$.version")
        op = OPERATIONS.get(message.type)
        if op is not None:
            return self._row(op, message)
        if message.data or message.old:
            path = "$.data" if message.data else "$.old"
            reason = "a message of this type has no rows"
            raise DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE, path=path)
        if message.type == WATERMARK:
            return _watermark(message)
        if message.type == BOOTSTRAP:
            return self._bootstrap(message)
        if message.type in ACTIONS or message.type == TRUNCATE:
            return self._statement(message)
        raise DecodeError("an unknown type", code=ReasonCode.UNKNOWN_OPERATION, path="$.type")

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, op: Op, message: SimpleMessage) -> DataChange:
        data, old = message.data, message.old
        _check_images(op, message)
        names = message.database or None, message.table or None
        table = self.find(*names, message.schemaVersion)
        holds = Completeness.KEY if message.handleKeyOnly else Completeness.FULL
        after = None if data is None else self._image(table, data, "$.data")
        before = None if old is None else self._image(table, old, "$.old")
        schema = None
        if table is not None:
            schema = table.schema_of({**(old or {}), **(data or {})})
            if self.verifies and not message.handleKeyOnly:
                _verify(table, message, before, after)
            holds = Completeness.UNKNOWN
        return DataChange(
            op,
            TableId(names[0], None, names[1]),
            None if table is None else table.key,
            before,
            after,
            schema,
            position_of(message.commitTs, "$.commitTs"),
            None,
            SOURCE,
            time_ns(message.commitTs),
            build_time(message),
            Completeness.UNKNOWN if before is None else holds,
            Completeness.UNKNOWN if after is None else holds,
            details_of(message),
        )

    def _image(self, table: Table | None, row: JsonRow, path: str) -> dict[str, Any]:
        if table is not None:
            return table.image(row, path)
        image: dict[str, Any] = {}
        name = ""
        try:
            for name, value in row.items():
                is_value = value is None or type(value) is str
                image[name] = value if is_value else self.timestamps.untyped(value)
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}") from None
        return image

    # -- other messages ------------------------------------------------------------------------

    def _bootstrap(self, message: SimpleMessage) -> SchemaChange:
        definition = message.tableSchema
        if definition is None:
            path = "$.tableSchema"
            raise DecodeError("no schema", code=ReasonCode.MISSING_FIELD, path=path)
        table = self.table_of_definition(definition)
        # "commitTs" is 0: the message repeats the schema that holds from its version
        return SchemaChange(
            TableId(definition.schema or None, None, definition.table or None),
            "alter",
            None,
            table.schema,
            table.key,
            position_of(definition.version, "$.tableSchema.version"),
            SOURCE,
            None,
            build_time(message),
            {"type": BOOTSTRAP, **_of_table(definition)},
        )

    def _statement(self, message: SimpleMessage) -> SchemaChange | Truncate:
        definition = message.tableSchema
        named = message.preTableSchema or definition
        table = TableId(message.database or None, None, message.table or None)
        if named is not None:
            table = TableId(named.schema or None, None, named.table or None)
        sql = message.sql or None
        table = table_of(sql, SOURCE.product, table)
        action = action_of_type(message.type, sql)
        parts: dict[str, Any] = {
            "position": position_of(message.commitTs, "$.commitTs"),
            "source": SOURCE,
            "source_time_ns": time_ns(message.commitTs),
            "process_time_ns": build_time(message),
            "details": {} if definition is None else _of_table(definition),
        }
        if action == "truncate":
            return Truncate(table, sql, **parts)
        if definition is None or action in _DROPS:
            return SchemaChange(table, action, sql, **parts)
        described = self.table_of_definition(definition)
        return SchemaChange(table, action, sql, described.schema, described.key, **parts)

    def table_of_definition(self, definition: TableDefinition) -> Table:
        """Return the table that a message describes.

        Raises:
            DecodeError: The description is not valid, or the type of a column is unknown.
        """
        try:
            return Table(definition, self.timestamps, KeyOrigin.PAYLOAD)
        except DecodeError as error:
            path = f"$.tableSchema{error.path.removeprefix('$')}"
            raise DecodeError(error.reason, code=error.code, path=path) from None


def load_message(value: bytes) -> SimpleMessage:
    """Return a message in JSON or in Avro, whose data never start like JSON.

    Raises:
        DecodeError: It is neither.
    """
    if value[:1] in AVRO_STARTS:
        return read_avro(value)
    return json.loads(value, SimpleMessage)


def action_of_type(kind: str, sql: str | None) -> str:
    """Return the action of a message about a statement: that of its text, else of its type.

    >>> action_of_type("ERASE", None), action_of_type("QUERY", "TRUNCATE TABLE t")
    ('drop', 'truncate')
    """
    if kind == TRUNCATE:
        return "truncate"
    return action_of(sql, SOURCE.product, ACTIONS.get(kind, "other"))


def _check_images(op: Op, message: SimpleMessage) -> None:
    """Check that a message has the row images of its operation.

    Raises:
        DecodeError: An image is missing or unexpected, or the row is not in the message.
    """
    if message.claimCheckLocation:
        raise DecodeError(
            "the message has only a link to the row",
            code=ReasonCode.INCOMPLETE_ROW,
            path="$.claimCheckLocation",
        )
    if message.handleKeyOnly and op is not Op.DELETE:
        raise DecodeError(
            "the message has only the key of the row",
            code=ReasonCode.INCOMPLETE_ROW,
            path="$.handleKeyOnly",
        )
    required, excluded = ("old", "data") if op is Op.DELETE else ("data", "old")
    if getattr(message, required) is None:
        raise DecodeError("no row", code=ReasonCode.MISSING_FIELD, path=f"$.{required}")
    if op is not Op.UPDATE and getattr(message, excluded) is not None:
        reason = "a message of this type has one row"
        raise DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE, path=f"$.{excluded}")


def _verify(
    table: Table, message: SimpleMessage, before: Image | None, after: Image | None
) -> None:
    """Compare the rows of a message with their checksums; a checksum of 0 is none.

    Raises:
        DecodeError: A checksum differs, or TiCDC itself found that.
    """
    checksum = message.checksum
    if checksum is None:
        return
    is_wrong = checksum.corrupted
    path = "$.checksum.corrupted"
    for row, image, expected, name in (
        (message.old, before, checksum.previous, "previous"),
        (message.data, after, checksum.current, "current"),
    ):
        if expected and row is not None and image is not None and not is_wrong:
            is_wrong = table.checksum(row, image) != expected
            path = f"$.checksum.{name}"
    if is_wrong:
        raise DecodeError("the row is corrupted", code=ReasonCode.CHECKSUM, path=path)


def _watermark(message: SimpleMessage) -> Watermark:
    position = position_of(message.commitTs, "$.commitTs")
    if position is None:
        raise DecodeError("no time stamp", code=ReasonCode.MISSING_FIELD, path="$.commitTs")
    return Watermark("resolved", position, SOURCE, time_ns(message.commitTs), build_time(message))


def build_time(message: SimpleMessage) -> int | None:
    """Return the process time of a message in nanoseconds.

    Raises:
        DecodeError: It is out of range.
    """
    value = message.buildTs
    if not value:
        return None
    if not -_AFTER_LAST_MS < value < _AFTER_LAST_MS:
        raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.buildTs")
    return value * _MILLISECOND


def details_of(message: SimpleMessage) -> dict[str, object]:
    """Return the fields of a message that have no place in its event."""
    details: dict[str, object] = {}
    if message.tableID is not None:
        details["tableID"] = message.tableID
    if message.schemaVersion is not None:
        details["schemaVersion"] = message.schemaVersion
    checksum = message.checksum
    if checksum is not None:
        details["checksum"] = {name: getattr(checksum, name) for name in checksum.__struct_fields__}
    return details


def _of_table(definition: TableDefinition) -> dict[str, object]:
    fields = {"tableID": definition.tableID, "schemaVersion": definition.version}
    return {name: value for name, value in fields.items() if value is not None}
