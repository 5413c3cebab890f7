# SPDX-License-Identifier: Apache-2.0
"""Events to Debezium 3's messages: field order, schema block, key, tombstones."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    HalfUpdate,
    LogicalMessage,
    Op,
    SchemaChange,
    Tombstone,
    TransactionMarker,
    Truncate,
    Watermark,
    is_key_change,
    key_of,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import LACKING_ROW, PARTIAL_ROW
from changelane.formats.contract.row_writing import RowWriting
from changelane.formats.debezium_envelope import blocks, other_events_writer
from changelane.formats.debezium_envelope.fillers import may_have_fillers, report_possible_fillers
from changelane.formats.debezium_envelope.message_key import NEW_KEY, OLD_KEY, other_key_name
from changelane.formats.debezium_envelope.options import (
    FILLER_PRODUCTS,
    BeforeImage,
    Options,
    Tombstones,
)
from changelane.formats.debezium_envelope.row_writers import Headers, RowWriters
from changelane.formats.debezium_envelope.row_writing import row_writing
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.modes import Modes, modes_of
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import is_foreign, wrapped
from changelane.formats.debezium_envelope.rows.row_reader import key_row
from changelane.formats.debezium_envelope.rows.row_writer import Images
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.message import Message
from changelane.schema import TableId

_NOTHING: Final[Mapping[str, Any]] = {}
_USUAL_FIELDS: Final = len(("before", "after", "source", "transaction", "op", *blocks.TIMES))


class Encoder:
    """Encodes the events of one codec."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._placeholder = Placeholder(options.placeholder)
        self._writers = RowWriters(self._modes, self._placeholder)

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        details = event.change.details if isinstance(event, HalfUpdate) else event.details
        if is_foreign(details):
            report(("details", "further fields of other producers are not written"))
        match event:
            case DataChange():
                return self._change(event, report)
            case HalfUpdate(change, other_key):
                headers = self._writers.header(change, other_key_name(change), other_key, report)
                return (self._row(change, report, headers),)
            case Tombstone():
                return (self._tombstone(event, report),)
            case Truncate():
                return (self._truncate(event, report),)
            case SchemaChange() | TransactionMarker() | Watermark() | LogicalMessage() | Control():
                return other_events_writer.encode(event, report)

    def _change(self, event: DataChange, report: Report) -> tuple[Message, ...]:
        if is_key_change(event):
            return self._key_change(event, report)
        headers: Headers = ()
        if "header" in event.details:
            headers = self._writers.header(event, other_key_name(event), None, report)
        return self._with_tombstone(event, self._row(event, report, headers))

    def _with_tombstone(self, event: DataChange, message: Message) -> tuple[Message, ...]:
        """Return the message of a change, and the tombstone after that of a delete."""
        tombstones = self._options.tombstones
        if event.op is Op.DELETE and (
            tombstones is Tombstones.TRUE
            or (tombstones is Tombstones.AUTO and event.source.version is None)
        ):
            return message, Message(None, message.key, topic=message.topic)
        return (message,)

    def _key_change(self, event: DataChange, report: Report) -> tuple[Message, ...]:
        """Return the messages of a key change, like Debezium's: delete, tombstone, create."""
        before, after = event.before or {}, event.after or {}
        if event.schema is not None and not event.schema.names <= after.keys():
            # readers of the create take a missing column for NULL
            after = {**before, **after}
            if not event.schema.names <= after.keys():
                report(LACKING_ROW)
        details = {name: value for name, value in event.details.items() if name != "key"}
        transaction = event.transaction
        delete = msgspec.structs.replace(event, op=Op.DELETE, after=None, details=details)
        if transaction is not None:
            transaction = msgspec.structs.replace(
                transaction,
                order=None if transaction.order is None else transaction.order + 1,
                table_order=(
                    None if transaction.table_order is None else transaction.table_order + 1
                ),
            )
        create = msgspec.structs.replace(
            event,
            op=Op.CREATE,
            before=None,
            after=after,
            transaction=transaction,
            details=details,
        )
        new, old = key_of(event, after), key_of(event, before)
        if new is None or (event.position is None and event.source_time_ns is None):
            report(("key_change", "readers cannot join the delete and the create"))
        first = self._row(delete, report, self._writers.header(event, NEW_KEY, new, report))
        last = self._row(create, report, self._writers.header(event, OLD_KEY, old, report))
        if self._options.tombstones is Tombstones.FALSE:
            return first, last
        tombstone = Message(None, first.key, first.headers, topic=first.topic)
        return first, tombstone, last

    def row_writing(self, change: DataChange) -> RowWriting:
        """Return how the messages of plain changes are written (:data:`WritingOf`).

        Raises:
            NotPlainError: Messages such as that of this change are not plain.
        """

        def messages_of(event: DataChange, images: Images, report: Report) -> tuple[Message, ...]:
            return self._with_tombstone(event, self._message(event, images, report))

        return row_writing(change, self._writers.of(change), self._placeholder, messages_of)

    # -- rows ----------------------------------------------------------------------------------

    def _modes(self, product: str | None) -> Modes:
        options = self._options
        return modes_of(
            options.time_precision_mode,
            options.decimal_format,
            product,
            options.binary_handling_mode,
            source_types=options.source_types,
        )

    def _row(self, event: DataChange, report: Report, headers: Headers) -> Message:
        details = event.details
        writer = self._writers.of(event)
        placeholders: Any = details.get("placeholders", _NOTHING)
        # with full before images, readers take a filler for a value
        is_full = self._options.before_image is BeforeImage.FULL
        fillers: Any = None if is_full else details.get("fillers")
        before = after = None
        if fillers is None and event.op is Op.DELETE and self._may_have_fillers(event):
            fillers = _NOTHING
        if event.before is not None and "before" not in details:
            before = writer.write(event.before, report, placeholders, fillers)
        if event.after is not None:
            after = writer.write(event.after, report, placeholders)
        return self._message(event, Images(writer, before, after), report, headers)

    def _message(
        self, event: DataChange, images: Images, report: Report, headers: Headers = ()
    ) -> Message:
        """Return the message of a change with the JSON of its images."""
        details, (writer, before, after) = event.details, images
        payload = {"before": before, "after": after, **self._tail(event, event.op.value)}
        topic = topic_of(event.source, event.table)
        base = str(details.get("name") or topic)
        has_schema = self._options.schemas_enable and event.schema is not None
        if event.schema is not None and not has_schema:
            report(("schema", "column types are not written (schemas_enable is false)"))
            if event.op is Op.UPDATE and not writer.fields.keys() <= (after or {}).keys():
                report(PARTIAL_ROW)
        if before is not None and self._may_have_fillers(event):
            report_possible_fillers(event, before, writer, report, has_schema=has_schema)
        _report_coordinates(event, report)
        blocks.report_snapshot(event, report)
        block = None
        if has_schema:
            for loss in writer.losses:
                report(loss)
            shape = (writer, base, event.source.product, _shape(payload))
            block = self._writers.blocks.get(shape)
            if block is None:
                name = f"{base}.Value"
                rows = writer.struct(before, name, "before"), writer.struct(after, name, "after")
                block = self._writers.add_block(shape, _envelope(event, rows, base, payload))
        row = key_row(event.key, before, after)
        key = self._writers.key(event, row, writer, base if has_schema else None, report)
        return Message(wrapped(block, payload), key, headers, topic or None)

    def _may_have_fillers(self, event: DataChange) -> bool:
        """Return whether a reader uses only the key of a before image."""
        return "before_image" not in event.details and may_have_fillers(
            event, self._options.before_image, FILLER_PRODUCTS
        )

    def _tail(self, event: DataChange | Truncate, op: str) -> dict[str, Any]:
        details = event.details
        other_fields: Any = details.get("source", _NOTHING)
        times: Any = details.get("times", _NOTHING)
        extra_fields: Any = details.get("envelope", _NOTHING)
        part: Any = details.get("transaction", _NOTHING)
        return {
            "source": blocks.source_block(
                event.source, event.table, event.position, event.source_time_ns, other_fields
            ),
            "transaction": blocks.transaction_block(event.transaction, part),
            "op": details.get("op", op),
            **blocks.times_of(event.process_time_ns, times),
            **extra_fields,
        }

    def _truncate(self, event: Truncate, report: Report) -> Message:
        _report_coordinates(event, report)
        if event.ddl is not None:
            report(("ddl", "a truncate has no statement"))
        payload = {"before": None, "after": None, **self._tail(event, "t")}
        topic = topic_of(event.source, event.table)
        base = str(event.details.get("name") or topic)
        block = None
        columns = event.details.get("columns")
        if columns is not None:
            members = msgspec.convert(columns, tuple[Schema, ...])
            value = struct(members, optional=True, name=f"{base}.Value", field="before")
            rows = value, msgspec.structs.replace(value, field="after")
            block = json.dumps(_envelope(event, rows, base, payload))
        return Message(wrapped(block, payload), None, topic=topic or None)

    def _tombstone(self, event: Tombstone, report: Report) -> Message:
        if event.table != TableId():
            report(("event:tombstone", "a tombstone does not name its table"))
        headers = self._writers.header(event, NEW_KEY, event.moved_to, report)
        has_schema = self._options.schemas_enable
        return self._writers.tombstone(event, report, headers, has_schema=has_schema)


def _envelope(
    event: DataChange | Truncate,
    rows: tuple[Schema, Schema],
    base: str,
    payload: Mapping[str, Any],
) -> Schema:
    """Return the schema of an envelope."""
    source, transaction = payload["source"], payload["transaction"]
    fields = (
        *rows,
        blocks.source_schema(event.source.product, source),
        blocks.transaction_schema(transaction),
        blocks.OP,
        *blocks.TIMES,
        *(blocks.schema_of_value(name, payload[name]) for name in tuple(payload)[_USUAL_FIELDS:]),
    )
    return struct(fields, name=f"{base}.Envelope", version=2)


def _shape(payload: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the parts of a payload that determine its schema: field names, and types of values."""
    before, after = payload["before"], payload["after"]
    source, transaction = payload["source"], payload["transaction"]
    return (
        None if before is None else tuple(before),
        None if after is None else tuple(after),
        tuple(source),
        tuple(map(type, source.values())),
        None
        if transaction is None
        else (tuple(transaction), tuple(map(type, transaction.values()))),
        None
        if len(payload) == _USUAL_FIELDS
        else tuple((name, type(payload[name])) for name in tuple(payload)[_USUAL_FIELDS:]),
    )


def _report_coordinates(event: DataChange | Truncate, report: Report) -> None:
    """Report the parts of position and transaction without a field in Debezium's blocks."""
    blocks.report_position(event.position, report)
    transaction = event.transaction
    if transaction is not None and transaction.size is not None:
        report(("transaction.size", "a row does not have it"))
