# SPDX-License-Identifier: Apache-2.0
"""Events to flattened rows, equal to the transformation's result for Debezium's messages."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    HalfUpdate,
    Image,
    LogicalMessage,
    Op,
    SchemaChange,
    Tombstone,
    TransactionMarker,
    Watermark,
)
from changelane.formats.contract.format import Report
from changelane.formats.contract.lane import NotPlainError
from changelane.formats.contract.losses import PARTIAL_ROW
from changelane.formats.contract.row_writing import RowWriting
from changelane.formats.debezium_envelope import blocks, other_events_writer
from changelane.formats.debezium_envelope.message_key import NEW_KEY, other_key_name
from changelane.formats.debezium_envelope.row_writers import Headers, RowWriters
from changelane.formats.debezium_envelope.row_writing import row_writing
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import is_foreign, wrapped
from changelane.formats.debezium_envelope.rows.row_writer import Images, RowWriter
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.formats.debezium_flat.added_fields import (
    DELETED,
    ENVELOPE,
    SOURCE,
    TRANSACTION,
    AddedField,
    RowMetadata,
    fields_in,
)
from changelane.formats.debezium_flat.decode import Decoder, is_other_event
from changelane.formats.debezium_flat.options import REWRITTEN, Deletes, Options, row_modes
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import UNAVAILABLE

_NOTHING: Final[Mapping[str, Any]] = {}
_FLAG: Final = AddedField(DELETED, ENVELOPE, DELETED)
_FIRST: Final = ("db", "schema", "table")
_LAST: Final = ("ts_ms", "ts_us", "ts_ns")

Row = dict[str, Any]


class Encoder:
    """Encodes the events of one codec."""

    def __init__(self, options: Options, decoder: Decoder) -> None:
        self._options = options
        self._deletes = options.delete_tombstone_handling_mode
        self._fields = fields_in(options.add_fields, options.add_fields_prefix, "add_fields")
        self._headers = fields_in(options.add_headers, options.add_headers_prefix, "add_headers")
        self._decoder = decoder
        modes = row_modes(options)
        self._placeholder = Placeholder(options.placeholder)
        self._writers = RowWriters(lambda _: modes, self._placeholder)

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        details = event.change.details if isinstance(event, HalfUpdate) else event.details
        if is_foreign(details) or "envelope" in details:
            report(("details", "further fields of other producers are not written"))
        match event:
            case DataChange():
                return self._change(event, None, report)
            case HalfUpdate(change, other_key):
                return self._change(change, other_key, report)
            case Tombstone():
                return (self._tombstone(event, report),)
            case SchemaChange() | TransactionMarker() | Watermark() | LogicalMessage() | Control():
                return other_events_writer.encode(event, report)
            case _:
                kind = event.__struct_config__.tag
                report((f"event:{kind}", "the transformation drops this message"))
                return ()

    def _change(
        self, event: DataChange, other_key: Image | None, report: Report
    ) -> tuple[Message, ...]:
        headers: Headers = ()
        if other_key is not None or "header" in event.details:
            headers = self._writers.header(event, other_key_name(event), other_key, report)
        mode = self._deletes
        if event.op is not Op.DELETE:
            return (self._row(event, report, headers),)
        if mode in {Deletes.TOMBSTONE, Deletes.DELETE_TO_TOMBSTONE}:
            return self._delete_as_tombstone(event, report, headers)
        return self._with_tombstone(self._row(event, report, headers))

    def _with_tombstone(self, message: Message) -> tuple[Message, ...]:
        """Return the message of a delete, and its tombstone if the option says so."""
        if self._deletes is not Deletes.REWRITE_WITH_TOMBSTONE:
            return (message,)
        return message, Message(None, message.key, message.headers, topic=message.topic)

    def row_writing(self, change: DataChange) -> RowWriting:
        """Return how the messages of plain changes are written (:data:`WritingOf`).

        Raises:
            NotPlainError: Messages such as that of this change are not plain.
        """
        writer = self._writers.of(change)
        if not self._reserved_names(writer.fields or change.after or change.before or {}):
            return row_writing(change, writer, self._placeholder, self._messages_of)
        raise NotPlainError

    def _messages_of(
        self, event: DataChange, images: Images, report: Report
    ) -> tuple[Message, ...]:
        """Return the messages of a change with the JSON of its images."""
        writer, before, after = images
        if event.op is not Op.DELETE:
            return (self._message(event, writer, after or {}, report),)
        if self._deletes in {Deletes.TOMBSTONE, Deletes.DELETE_TO_TOMBSTONE}:
            raise NotPlainError
        return self._with_tombstone(self._message(event, writer, before or {}, report))

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, event: DataChange, report: Report, headers: Headers) -> Message:
        details = event.details
        writer = self._writers.of(event)
        is_delete = event.op is Op.DELETE
        image = self._without_names((event.before if is_delete else event.after) or {}, report)
        placeholders: Any = details.get("placeholders", _NOTHING)
        # readers use only the key of a deleted row
        fillers = {n: None for n in image if n not in writer.fillers} if is_delete else None
        row = writer.write(image, report, placeholders, fillers)
        return self._message(event, writer, row, report, headers)

    def _message(
        self,
        event: DataChange,
        writer: RowWriter,
        row: Mapping[str, Any],
        report: Report,
        headers: Headers = (),
    ) -> Message:
        """Return the message of a change with the JSON of its row."""
        is_delete = event.op is Op.DELETE
        envelope = _Envelope(event)
        added = self._added(envelope)
        headers += self._added_headers(envelope)
        topic, base = _topic(event)
        payload = {
            **row,
            **{
                added_field.name: _value(added_field, envelope, is_delete=is_delete)
                for added_field in added
            },
        }
        self._report_losses(event, added, headers, topic, report)
        blocks.report_snapshot(event, report)
        has_schema = self._options.schemas_enable and event.schema is not None
        block = None
        lacks_columns = not writer.fields.keys() <= row.keys()
        if lacks_columns and event.op is Op.UPDATE:
            report(PARTIAL_ROW)
        if has_schema:
            for loss in writer.losses:
                report(loss)
            if lacks_columns:
                report(("schema", "columns that a row lacks are not written"))
            product = event.source.product
            shape = (writer, base, product, tuple(row), added)
            block = self._writers.blocks.get(shape)
            if block is None:
                schema = _schema(writer, base, row, added, product)
                block = self._writers.add_block(shape, schema)
        else:
            if event.schema is not None:
                report(("schema", "column types are not written (schemas_enable is false)"))
            if is_other_event(payload, self._decoder.names):
                report(("event:data", "read as a message of another kind, because of its fields"))
        key = self._writers.key(event, row, writer, base if has_schema else None, report)
        return Message(wrapped(block, payload), key, headers, topic or None)

    def _without_names(self, image: Image, report: Report) -> Image:
        """Return an image without columns that have the names of added fields."""
        reserved = self._reserved_names(image)
        if not reserved:
            return image
        report(("column", "a column has the name of an added field; not written"))
        return {name: value for name, value in image.items() if name not in reserved}

    def _reserved_names(self, names: Iterable[str]) -> list[str]:
        """Return the names that added fields have."""
        added_names = self._decoder.names
        return [name for name in names if name in added_names or name == DELETED]

    def _added(self, envelope: "_Envelope") -> tuple[AddedField, ...]:
        """Return the added fields in their order."""
        flag = (_FLAG,) if self._deletes in REWRITTEN else ()
        return flag + (self._fields or envelope.fields(self._options.add_fields_prefix))

    def _added_headers(self, envelope: "_Envelope") -> Headers:
        values = ((header, envelope.value(header)) for header in self._headers)
        return tuple((added_field.name, _header_text(value)) for added_field, value in values)

    # -- losses --------------------------------------------------------------------------------

    def _report_losses(
        self,
        event: DataChange,
        added: tuple[AddedField, ...],
        headers: Headers,
        topic: str,
        report: Report,
    ) -> None:
        """Report metadata that added fields, headers and topic lack, by decoding them again."""
        if not self._fields and self._options.add_fields_prefix:
            blocks.report_position(event.position, report)  # the rest is written
            if event.transaction is not None and event.transaction.size is not None:
                report(("transaction.size", "a row does not have it"))
            if event.op is Op.DELETE and not self._has_full_deletes(event, event.source.product):
                _report_before(event, report)
            return
        envelope = _Envelope(event)
        values = {
            added_field.name: envelope.value(added_field)
            for added_field in added
            if added_field.name != DELETED
        }
        metadata = self._decoder.metadata_of(
            Message(None, None, headers, topic or None), values, {}
        )
        _report_differences(event, metadata, report)
        is_flagged = any(added_field.name == DELETED for added_field in added)
        if event.op is Op.DELETE:
            if not is_flagged and metadata.op != Op.DELETE:
                report(("operation:d", "no added field has it"))
            if not self._has_full_deletes(event, metadata.table_origin.source.product):
                _report_before(event, report)
        elif metadata.op is None and event.op is not Op.UPDATE:
            report((f"operation:{event.op.value}", "no added field has it; read as an upsert"))

    def _has_full_deletes(self, event: DataChange, product: str | None) -> bool:
        return event.key is None or self._decoder.has_full_deletes(product)

    # -- deletes without a row -----------------------------------------------------------------

    def _delete_as_tombstone(
        self, event: DataChange, report: Report, headers: Headers
    ) -> tuple[Message, ...]:
        """Return a delete as a tombstone with the key, and metadata in headers and topic."""
        writer = self._writers.of(event)
        before = event.before or {}
        row = writer.write(before, report, _NOTHING)
        topic, base = _topic(event)
        has_schema = self._options.schemas_enable and event.schema is not None
        key = self._writers.key(event, row, writer, base if has_schema else None, report)
        if key is None:
            report(("operation:d", "a tombstone needs a key"))
            return ()
        headers += self._added_headers(_Envelope(event))
        metadata = self._decoder.metadata_of(Message(None, None, headers, topic or None), {}, {})
        _report_differences(event, metadata, report)
        names = () if event.key is None else event.key.columns
        if any(name not in names for name in before):
            report(("before", "a tombstone has the key only"))
        if event.schema is not None and event.schema.names != set(names):
            report(("schema", "a tombstone has the columns of the key only"))
        return (Message(None, key, headers, topic or None),)

    def _tombstone(self, event: Tombstone, report: Report) -> Message:
        if event.table != TableId():
            report(("table", "a tombstone does not name its table"))
        headers = self._writers.header(event, NEW_KEY, event.moved_to, report)
        has_schema = self._options.schemas_enable
        return self._writers.tombstone(event, report, headers, has_schema=has_schema)


class _Envelope:
    """Debezium's envelope of an event, as parts."""

    def __init__(self, event: DataChange) -> None:
        details = event.details
        other_fields: Any = details.get("source", _NOTHING)
        times: Any = details.get("times", _NOTHING)
        part: Any = details.get("transaction", _NOTHING)
        self.parts: dict[str, Mapping[str, Any]] = {
            ENVELOPE: {
                "op": details.get("op", event.op.value),
                **blocks.times_of(event.process_time_ns, times),
            },
            SOURCE: blocks.source_block(
                event.source, event.table, event.position, event.source_time_ns, other_fields
            ),
            TRANSACTION: blocks.transaction_block(event.transaction, part) or {},
        }

    def value(self, added: AddedField) -> Any:
        """Return the value of an added field."""
        return self.parts[added.part].get(added.field)

    def fields(self, prefix: str) -> tuple[AddedField, ...]:
        """Return an added field for each field that the event has."""
        if not prefix:
            return ()  # a reader could not distinguish them from columns
        source, envelope = self.parts[SOURCE], self.parts[ENVELOPE]
        names = [*_FIRST, *(n for n in source if n not in {*_FIRST, *_LAST, "snapshot"})]
        all_fields = [AddedField(prefix + "op", ENVELOPE, "op")]
        all_fields += [
            AddedField(prefix + n, SOURCE, n) for n in names if source.get(n) is not None
        ]
        if source.get("snapshot") not in {None, "false"}:
            all_fields.append(AddedField(prefix + "snapshot", SOURCE, "snapshot"))
        all_fields += [AddedField(f"{prefix}source_{n}", SOURCE, n) for n in _time_fields(source)]
        all_fields += [AddedField(prefix + n, ENVELOPE, n) for n in _time_fields(envelope)]
        block = self.parts[TRANSACTION]
        all_fields += [
            AddedField(f"{prefix}transaction_{n}", TRANSACTION, n)
            for n in block
            if block[n] is not None
        ]
        return tuple(all_fields)


def _time_fields(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields that express a time: only milliseconds, if the finer fields follow."""
    ms, us, ns = (fields.get(name) for name in _LAST)
    if ms is None or us is None or ns is None:
        return tuple(name for name in _LAST if fields.get(name) is not None)
    if ns == ms * 1_000_000 and us == ms * 1000:
        return ("ts_ms",)
    return _LAST


def _value(added: AddedField, envelope: _Envelope, *, is_delete: bool) -> Any:
    if added.name == DELETED:
        return "true" if is_delete else "false"
    return envelope.value(added)


def _schema(
    writer: RowWriter,
    base: str,
    row: Mapping[str, Any],
    added: tuple[AddedField, ...],
    product: str | None,
) -> Schema:
    """Return the schema of a row with its added fields."""
    members = [member for name, member in writer.fields.items() if name in row]
    members += [_added_schema(added_field, product) for added_field in added]
    return struct(tuple(members), name=f"{base}.Value")


def _added_schema(added: AddedField, product: str | None) -> Schema:
    """Return the schema of an added field: that of its field in the envelope, but optional."""
    if added.name == DELETED:
        return Schema("string", optional=True, field=DELETED)
    written_details = {
        ENVELOPE: {"op": blocks.OP, **{field.member: field for field in blocks.TIMES}},
        SOURCE: blocks.fields_of(product),
        TRANSACTION: {field.member: field for field in blocks.transaction_schema(None).members},
    }[added.part]
    field = written_details.get(added.field)
    return Schema("string" if field is None else field.type, optional=True, field=added.name)


def _header_text(value: Any) -> bytes | None:
    """Return the bytes of a header, in the form of Connect's simple converter."""
    return None if value is None else str(value).encode()


def _topic(event: DataChange) -> tuple[str, str]:
    """Return the topic of a row, and the base of its schema's name."""
    stored_topic = event.details.get("topic")
    topic = topic_of(event.source, event.table) if stored_topic is None else str(stored_topic)
    return topic, str(event.details.get("name") or topic)


def _report_differences(event: DataChange, metadata: RowMetadata, report: Report) -> None:
    """Report the differences between an event and the metadata that a reader decodes."""
    table_origin = metadata.table_origin
    pairs: list[tuple[str, Any, Any]] = [
        *((f"table.{n}", getattr(event.table, n), getattr(table_origin.table, n)) for n in _TABLE),
        *(
            (f"source.{n}", getattr(event.source, n), getattr(table_origin.source, n))
            for n in _SOURCE
        ),
        ("position", event.position, metadata.position),
        ("transaction", event.transaction, metadata.transaction),
        ("source_time", event.source_time_ns, metadata.time_ns),
        ("process_time", event.process_time_ns, metadata.process_ns),
    ]
    for field, first, second in pairs:
        if first != second:
            report((field, "no added field has it"))


_TABLE: Final = ("database", "schema", "name")
_SOURCE: Final = ("product", "server", "version", "snapshot")


def _report_before(event: DataChange, report: Report) -> None:
    """Report a loss if a deleted row has values beside its key, which readers do not use."""
    names = () if event.key is None else event.key.columns
    for name, value in (event.before or {}).items():
        if name not in names and value is not UNAVAILABLE:
            report(("before", "readers use only the key of a deleted row"))
            return
