# SPDX-License-Identifier: Apache-2.0
"""Events to messages of CDL: thirteen fields in their order, with a schema."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from changelane.event import (
    ChangeEvent,
    DataChange,
    Image,
    Op,
    Transaction,
    Watermark,
)
from changelane.formats.cdl.json.options import (
    FILLERS,
    MESSAGE_TYPE,
    OPERATIONS,
    VERSION,
    LobNulls,
    Options,
    Owner,
    lob_names,
    modes_of,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.contract.row_writing import RowWriting
from changelane.formats.debezium_envelope import blocks
from changelane.formats.debezium_envelope.fillers import may_have_fillers, report_possible_fillers
from changelane.formats.debezium_envelope.row_writers import RowWriters
from changelane.formats.debezium_envelope.row_writing import row_writing
from changelane.formats.debezium_envelope.rows.columns import field_of
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, struct
from changelane.formats.debezium_envelope.rows.modes import Modes, TimePrecisionMode
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import (
    NO_SCHEMA,
    from_text,
    stored_topic,
    wrapped,
    wrapped_key,
)
from changelane.formats.debezium_envelope.rows.row_reader import plain_json
from changelane.formats.debezium_envelope.rows.row_writer import Images, RowWriter
from changelane.message import Message
from changelane.position import Position, PostgresPosition, ScnPosition
from changelane.schema import TableSchema
from changelane.types import UNAVAILABLE, Time, Timestamp

_MICROS: Final = Modes(TimePrecisionMode.ADAPTIVE)
_INT64: Final = 1 << 63
_LIMIT: Final = 1024
_NOTHING: Final[Mapping[str, Any]] = {}
_OPERATIONS: Final = {op: word for word, op in OPERATIONS.items()}
_OWN_DETAILS: Final = frozenset(
    "key topic DATA_STORE message HEARTBEAT_IDENTIFIER message_type fields unique_fields name image"
    " data LOB_COLUMNS placeholders fillers properties unique envelope transaction".split()
)
_NUMBER: Final = re.compile(r"(0|[1-9]\d{0,18})(:.*)?", re.ASCII | re.DOTALL)

_PROPERTY: Final = struct((Schema("string", field="name"), Schema("int64", field="value")))
_TRANSACTION: Final = struct(
    (Schema("array", items=_PROPERTY, field="properties"),),
    name="transaction",
    field="transaction",
)
_TIMESTAMP: Final = Schema(
    "int64", name="org.apache.kafka.connect.data.Timestamp", version=1, field="TIMESTAMP"
)

Row = dict[str, Any]


class Encoder:
    """Encodes the events of one codec."""

    def __init__(self, options: Options) -> None:
        self._options = options
        modes = modes_of(options)
        self._placeholder = Placeholder(options.placeholder)
        self._writers = RowWriters(lambda _: modes, self._placeholder, self._fields)
        self._blocks: BoundedCache[tuple[object, ...], tuple[bytes, bytes | None]]
        self._blocks = BoundedCache(_LIMIT)

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        return encode_event(event, report, self._change)

    def row_writing(self, change: DataChange) -> RowWriting:
        """Return how the messages of plain changes are written (:data:`WritingOf`).

        Raises:
            NotPlainError: Messages such as that of this change are not plain.
        """

        def messages_of(event: DataChange, images: Images, report: Report) -> tuple[Message, ...]:
            return (self._message(event, images, (), report),)

        writer = self._writers.of(change)
        return row_writing(change, writer, self._placeholder, messages_of, has_lobs=True)

    def _change(self, event: DataChange, report: Report) -> Message:
        if not event.details.keys() <= _OWN_DETAILS:
            report(("details", "further fields of other producers are not written"))
        images, lobs = self._images(event, report)
        return self._message(event, images, lobs, report)

    def _message(
        self, event: DataChange, images: Images, lobs: tuple[str, ...], report: Report
    ) -> Message:
        """Return the message of a change with encoded images."""
        details, (writer, before, after) = event.details, images
        if before is not None and self._may_have_fillers(event):
            has_schema = event.schema is not None
            report_possible_fillers(event, before, writer, report, has_schema=has_schema)
        owner = _owner(event, self._options.owner, report)
        row = after if after is not None else before
        unique = unique_of(event, row, report)
        image = details.get("image")
        if image is not None:
            before, after = None, before if image == "data" else None
        elif "data" in details:
            after = details["data"]  # type: ignore[assignment]
        product = event.source.product
        extra_fields: Any = details.get("envelope", _NOTHING)
        payload: Row = {
            "DATA_STORE": details.get("DATA_STORE", product.upper() if product else product),
            "SEG_OWNER": owner,
            "TABLE_NAME": event.table.name,
            "TIMESTAMP": None if event.source_time_ns is None else event.source_time_ns // 10**6,
            "OPERATION": _OPERATIONS[event.op],
            "LOB_COLUMNS": details.get("LOB_COLUMNS", ",".join(lobs) or None),
            "transaction": details.get("transaction") or {"properties": _properties(event, report)},
            "unique": unique,
            "data": after,
            "before": before,
            "message_version": VERSION,
            "message_type": details.get("message_type", MESSAGE_TYPE),
            "HEARTBEAT_IDENTIFIER": details.get("HEARTBEAT_IDENTIFIER"),
            **extra_fields,
        }
        block: bytes = NO_SCHEMA
        key_block: bytes | None = NO_SCHEMA
        if event.schema is not None:
            for loss in writer.losses:
                report(loss)
            block, key_block = self._described(event, writer, payload)
        key = None
        if "key" in details:
            key = from_text(details["key"])
        elif unique:
            key = wrapped_key(key_block, unique)
        return Message(wrapped(block, payload), key, topic=stored_topic(details))

    # -- images --------------------------------------------------------------------------------

    def _fields(self, schema: TableSchema | None, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**_finer(schema, self._options), **raw}

    def _images(self, event: DataChange, report: Report) -> tuple[Images, tuple[str, ...]]:
        """Return the JSON of both images, and the columns in LOB_COLUMNS."""
        writer = self._writers.of(event)
        placeholders: Any = event.details.get("placeholders", _NOTHING)
        before = after = None
        lobs: tuple[str, ...] = ()
        if event.before is not None:
            image: Image = event.before
            fillers: Any = event.details.get("fillers")
            if fillers is None and self._may_have_fillers(event):
                fillers = _NOTHING
            if event.op is Op.DELETE and fillers is None:
                image, lobs = without_lobs(event, image, placeholders, self._options.lob_nulls)
            before = writer.write(image, report, placeholders, fillers)
        if event.after is not None:
            image, lobs = without_lobs(event, event.after, placeholders, self._options.lob_nulls)
            after = writer.write(image, report, placeholders)
        return Images(writer, before, after), lobs

    def _may_have_fillers(self, event: DataChange) -> bool:
        """Return whether a reader uses only the key of a before image."""
        before_image = self._options.before_image
        return event.details.get("image") != "unique" and may_have_fillers(
            event, before_image, FILLERS, in_key_changes=True
        )

    # -- schema blocks -------------------------------------------------------------------------

    def _described(
        self, event: DataChange, writer: RowWriter, payload: Row
    ) -> tuple[bytes, bytes | None]:
        """Return the schema blocks of value and key."""
        details = event.details
        owner, table = payload["SEG_OWNER"], payload["TABLE_NAME"]
        name = str(details.get("name", ".".join(part for part in (owner, table) if part)))
        columns = payload["unique"] or (() if event.key is None else event.key.columns)
        unique_fields: Any = details.get("unique_fields", _NOTHING)
        shape = (
            writer,
            name,
            tuple(columns),
            *[payload[field] is None for field in _REQUIRED],
            _extra_types(payload),
            b"" if unique_fields is _NOTHING else json.dumps(unique_fields),
        )
        described = self._blocks.get(shape)
        if described is None:
            members = tuple(
                msgspec.convert(unique_fields[column], Schema)
                if column in unique_fields
                else writer.fields[column]
                for column in columns
                if column in writer.fields
            )
            key = struct(members, name="unique")
            block = json.dumps(_envelope(name, writer, payload, key))
            described = self._blocks.add(shape, (block, json.dumps(key) if members else None))
        return described


def _extra_types(payload: Row) -> tuple[tuple[str, type], ...]:
    """Return the names and types of the fields after CDL's own."""
    if len(payload) == _USUAL_FIELDS:
        return ()
    return tuple((field, type(value)) for field, value in tuple(payload.items())[_USUAL_FIELDS:])


_USUAL_FIELDS: Final = 13
_IMAGES: Final = ("data", "before")
_REQUIRED: Final = ("DATA_STORE", "SEG_OWNER", "TABLE_NAME", "TIMESTAMP", "message_type")


def _envelope(name: str, writer: RowWriter, payload: Row, unique: Schema) -> Schema:
    def text(field: str, *, optional: bool = False) -> Schema:
        return Schema("string", optional=optional or payload[field] is None, field=field)

    replace = msgspec.structs.replace
    fields = (
        text("DATA_STORE"),
        text("SEG_OWNER"),
        text("TABLE_NAME"),
        replace(_TIMESTAMP, optional=payload["TIMESTAMP"] is None),
        text("OPERATION"),
        text("LOB_COLUMNS", optional=True),
        _TRANSACTION,
        replace(unique, optional=True, field="unique"),
        # as in the sample, also those columns that an image lacks
        *(writer.struct(None, image, image) for image in _IMAGES),
        text("message_version"),
        text("message_type"),
        text("HEARTBEAT_IDENTIFIER", optional=True),
        *(
            blocks.schema_of_value(field, payload[field])
            for field in tuple(payload)[_USUAL_FIELDS:]
        ),
    )
    return struct(fields, name=name or UNSET)


def _finer(schema: TableSchema | None, options: Options) -> dict[str, Any]:
    """Return the schemas of columns with more digits than Connect's own types have."""
    exact = modes_of(options, exact=True)
    fields: dict[str, Any] = {}
    for column in () if schema is None else schema.columns:
        match column.type:
            case Time(precision) if precision is None or precision > 3:
                fields[column.name] = plain_json(field_of(column, _MICROS))
            case Timestamp(precision) if precision is None or precision > 3:
                fields[column.name] = plain_json(field_of(column, exact))
    return fields


def encode_event(
    event: ChangeEvent, report: Report, change: Callable[[DataChange, Report], Message]
) -> tuple[Message, ...]:
    """Return the messages of an event, where *change* encodes a row change."""
    match event:
        case DataChange():
            return (change(event, report),)
        case Watermark() if "message" in event.details:  # a heartbeat
            details = event.details
            key, value = from_text(details.get("key")), from_text(details["message"])
            return (Message(value, key, topic=stored_topic(details)),)
        case _:
            kind = event.__struct_config__.tag
            report((f"event:{kind}", "CDL has no such message"))
            return ()


def without_lobs(
    event: DataChange, image: Image, placeholders: Mapping[str, Any], lob_nulls: LobNulls
) -> tuple[Image, tuple[str, ...]]:
    """Return an image without unavailable values, and their columns, for LOB_COLUMNS.

    An update has these columns as null, unless null is a value there; an insert or a delete omits
    them. A column with a name that LOB_COLUMNS cannot list keeps its value.
    """
    if UNAVAILABLE not in image.values():
        return image, ()
    lobs = tuple(
        name
        for name, value in image.items()
        if value is UNAVAILABLE and name not in placeholders and lob_names(name) == (name,)
    )
    hidden = frozenset(lobs)
    if event.op is Op.UPDATE and lob_nulls is LobNulls.UNAVAILABLE:
        return {name: None if name in hidden else value for name, value in image.items()}, lobs
    return {name: value for name, value in image.items() if name not in hidden}, lobs


def unique_of(event: DataChange, row: Mapping[str, Any] | None, report: Report) -> Row | None:
    """Return the primary key's columns and values."""
    if "unique" in event.details:
        return event.details["unique"]  # type: ignore[return-value]
    if event.key is None:
        return None
    if row is None or any(row.get(name) is None for name in event.key.columns):
        report(("key", "the row does not have its values"))
        return None
    return {name: row[name] for name in event.key.columns}


def _owner(event: DataChange, option: Owner, report: Report) -> str | None:
    """Return SEG_OWNER, one part of the table's name."""
    parts = {"schema": event.table.schema, "database": event.table.database}
    owner = parts.pop(option.of(event.source.product))
    for name, part in parts.items():
        if part is not None:
            report((f"table.{name}", "not written"))
    return owner


# -- coordinates -----------------------------------------------------------------------------------


def _properties(event: DataChange, report: Report) -> list[dict[str, Any]]:
    """Return the coordinates of a change in the source's log, as CDL's names and numbers."""
    if "properties" in event.details:
        stored_properties: Any = event.details["properties"]
        return [{"name": name, "value": value} for name, value in stored_properties]
    property_values = {
        **_coordinates(event.position, report),
        **transaction_number(event.transaction, report),
    }
    return [{"name": name, "value": value} for name, value in property_values.items()]


def _coordinates(position: Position | None, report: Report) -> dict[str, int]:
    match position:
        case None:
            return {}
        case PostgresPosition(lsn, last_commit_lsn, row):
            if last_commit_lsn is not None or row:
                report(("position", "only the LSN is written"))
            return {"lsn": lsn if lsn < _INT64 else lsn - 2 * _INT64}
        case ScnPosition(scn) if scn < _INT64:
            if position != ScnPosition(scn):
                report(("position", "only the SCN is written"))
            return {"scn": scn}
        case _:
            report(("position", "a number above 64 bits"))
            return {}


def transaction_number(transaction: Transaction | None, report: Report) -> dict[str, int]:
    """Return CDL's ``txId`` of a transaction: the number in its id."""
    if transaction is None:
        return {}
    match = _NUMBER.fullmatch(transaction.id)
    if match is None or int(match[1]) >= _INT64:
        report(("transaction.id", "not a number"))
        return {}
    if match[2]:
        # Debezium's transaction id of PostgreSQL is "<txId>:<lsn>"
        report(("transaction.id", "only its number is written"))
    return {"txId": int(match[1])}
