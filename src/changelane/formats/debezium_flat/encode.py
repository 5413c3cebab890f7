# SPDX-License-Identifier: Apache-2.0
"""Events to flattened rows, as the transformation makes them of Debezium's messages."""

from collections.abc import Mapping
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
from changelane.formats.debezium_envelope import blocks, other_events_writer
from changelane.formats.debezium_envelope.message_key import NEW_KEY, other_key_name
from changelane.formats.debezium_envelope.row_writers import Headers, RowWriters
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import is_foreign, wrapped
from changelane.formats.debezium_envelope.rows.row_writer import RowWriter
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.formats.debezium_flat.added_fields import (
    DELETED,
    ENVELOPE,
    SOURCE,
    TRANSACTION,
    Added,
    Origin,
    listed,
)
from changelane.formats.debezium_flat.decode import Decoder, is_notice
from changelane.formats.debezium_flat.options import REWRITTEN, Deletes, Options, row_modes
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import UNAVAILABLE

_NOTHING: Final[Mapping[str, Any]] = {}
_FLAG: Final = Added(DELETED, ENVELOPE, DELETED)
_FIRST: Final = ("db", "schema", "table")
_LAST: Final = ("ts_ms", "ts_us", "ts_ns")

Row = dict[str, Any]


class Encoder:
    """Writes the events of one codec."""

    def __init__(self, options: Options, decoder: Decoder) -> None:
        self._options = options
        self._deletes = options.delete_tombstone_handling_mode
        self._fields = listed(options.add_fields, options.add_fields_prefix, "add_fields")
        self._headers = listed(options.add_headers, options.add_headers_prefix, "add_headers")
        self._decoder = decoder
        modes = row_modes(options)
        self._writers = RowWriters(lambda _: modes, Placeholder(options.placeholder))

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        details = event.change.details if isinstance(event, HalfUpdate) else event.details
        if is_foreign(details) or "envelope" in details:
            report(("details", "another producer's own fields are not written"))
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
                report((f"event:{kind}", "the transformation drops it"))
                return ()

    def _change(
        self, event: DataChange, other_key: Image | None, report: Report
    ) -> tuple[Message, ...]:
        headers = self._writers.header(event, other_key_name(event), other_key, report)
        mode = self._deletes
        if event.op is not Op.DELETE:
            return (self._row(event, report, headers),)
        if mode in {Deletes.TOMBSTONE, Deletes.DELETE_TO_TOMBSTONE}:
            return self._gone(event, report, headers)
        row = self._row(event, report, headers)
        if mode is not Deletes.REWRITE_WITH_TOMBSTONE:
            return (row,)
        return row, Message(None, row.key, row.headers, topic=row.topic)

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, event: DataChange, report: Report, headers: Headers) -> Message:
        details = event.details
        writer = self._writers.of(event)
        is_gone = event.op is Op.DELETE
        image = self._without_names((event.before if is_gone else event.after) or {}, report)
        placeholders: Any = details.get("placeholders", _NOTHING)
        # of a deleted row nobody believes more than the key
        fillers = {n: None for n in image if n not in writer.fillers} if is_gone else None
        row = writer.write(image, report, placeholders, fillers)
        metadata = _Told(event)
        added = self._added(metadata)
        headers += self._added_headers(metadata)
        topic, base = _topic(event)
        payload = {
            **row,
            **{
                added_field.name: _value(added_field, metadata, is_gone=is_gone)
                for added_field in added
            },
        }
        self._report_untold(event, added, headers, topic, report)
        blocks.report_snapshot(event, report)
        has_schema = self._options.schemas_enable and event.schema is not None
        block = None
        if has_schema:
            for loss in writer.losses:
                report(loss)
            if not writer.fields.keys() <= row.keys():
                report(("schema", "columns that a row lacks are not told"))
            product = event.source.product
            shape = (writer, base, product, tuple(row), added)
            block = self._writers.block(shape, lambda: _schema(writer, base, row, added, product))
        else:
            if event.schema is not None:
                report(("schema", "column types are not written (schemas_enable is false)"))
            if is_notice(payload, self._decoder.names):
                report(("event:data", "its fields are those of a message that is no row"))
        key = self._writers.key(event, row, writer, base if has_schema else None)
        return Message(wrapped(block, payload), key, headers, topic or None)

    def _without_names(self, image: Image, report: Report) -> Image:
        """Return an image without columns that have the names of added fields."""
        names = self._decoder.names
        taken_names = [name for name in image if name in names or name == DELETED]
        if not taken_names:
            return image
        report(("column", "a column has the name of an added field; not written"))
        return {name: value for name, value in image.items() if name not in taken_names}

    def _added(self, metadata: "_Told") -> tuple[Added, ...]:
        """Return the added fields in their order."""
        flag = (_FLAG,) if self._deletes in REWRITTEN else ()
        return flag + (self._fields or metadata.every(self._options.add_fields_prefix))

    def _added_headers(self, metadata: "_Told") -> Headers:
        values = ((header, metadata.value(header)) for header in self._headers)
        return tuple((added_field.name, _header_text(value)) for added_field, value in values)

    # -- what a reader will not find -----------------------------------------------------------

    def _report_untold(
        self,
        event: DataChange,
        added: tuple[Added, ...],
        headers: Headers,
        topic: str,
        report: Report,
    ) -> None:
        """Report what added fields, headers and topic do not tell, by reading them again."""
        if not self._fields and self._options.add_fields_prefix:
            blocks.report_position(event.position, report)  # all else is told
            if event.transaction is not None and event.transaction.size is not None:
                report(("transaction.size", "a row does not tell it"))
            if event.op is Op.DELETE and not self._believes(event, event.source.product):
                _report_before(event, report)
            return
        metadata = _Told(event)
        values = {
            added_field.name: metadata.value(added_field)
            for added_field in added
            if added_field.name != DELETED
        }
        origin = self._decoder.origin(Message(None, None, headers, topic or None), values, {})
        _compare(event, origin, report)
        is_flagged = any(added_field.name == DELETED for added_field in added)
        if event.op is Op.DELETE:
            if not is_flagged and origin.op != Op.DELETE:
                report(("operation:d", "no added field tells it"))
            if not self._believes(event, origin.place.source.product):
                _report_before(event, report)
        elif origin.op is None and event.op is not Op.UPDATE:
            report((f"operation:{event.op.value}", "no added field tells it: read as an upsert"))

    def _believes(self, event: DataChange, product: str | None) -> bool:
        return event.key is None or self._decoder.believes(product)

    # -- deletes without a row -----------------------------------------------------------------

    def _gone(self, event: DataChange, report: Report, headers: Headers) -> tuple[Message, ...]:
        """Write a delete as a tombstone: its key, and what headers and topic tell."""
        writer = self._writers.of(event)
        before = event.before or {}
        row = writer.write(before, report, _NOTHING)
        topic, base = _topic(event)
        has_schema = self._options.schemas_enable and event.schema is not None
        key = self._writers.key(event, row, writer, base if has_schema else None)
        if key is None:
            report(("operation:d", "a tombstone needs a key"))
            return ()
        headers += self._added_headers(_Told(event))
        origin = self._decoder.origin(Message(None, None, headers, topic or None), {}, {})
        _compare(event, origin, report)
        names = () if event.key is None else event.key.columns
        if any(name not in names for name in before):
            report(("before", "a tombstone tells the key only"))
        if event.schema is not None and event.schema.names != set(names):
            report(("schema", "a tombstone tells the columns of the key only"))
        return (Message(None, key, headers, topic or None),)

    def _tombstone(self, event: Tombstone, report: Report) -> Message:
        if event.table != TableId():
            report(("table", "a tombstone names no table"))
        headers = self._writers.header(event, NEW_KEY, event.moved_to, report)
        has_schema = self._options.schemas_enable
        return self._writers.tombstone(event, report, headers, has_schema=has_schema)


class _Told:
    """The envelope that Debezium would write for an event, part by part."""

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

    def value(self, added: Added) -> Any:
        """Return what an added field holds."""
        return self.parts[added.part].get(added.field)

    def every(self, prefix: str) -> tuple[Added, ...]:
        """Return fields for all that the event tells, the finest of equal times only."""
        if not prefix:
            return ()  # a reader could not tell them from columns
        source, envelope = self.parts[SOURCE], self.parts[ENVELOPE]
        names = [*_FIRST, *(n for n in source if n not in {*_FIRST, *_LAST, "snapshot"})]
        all_fields = [Added(prefix + "op", ENVELOPE, "op")]
        all_fields += [Added(prefix + n, SOURCE, n) for n in names if source.get(n) is not None]
        if source.get("snapshot") not in {None, "false"}:
            all_fields.append(Added(prefix + "snapshot", SOURCE, "snapshot"))
        all_fields += [Added(f"{prefix}source_{n}", SOURCE, n) for n in _needed(source)]
        all_fields += [Added(prefix + n, ENVELOPE, n) for n in _needed(envelope)]
        block = self.parts[TRANSACTION]
        all_fields += [
            Added(f"{prefix}transaction_{n}", TRANSACTION, n) for n in block if block[n] is not None
        ]
        return tuple(all_fields)


def _needed(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of the fields of a time are needed: milliseconds, and finer ones as they are."""
    ms, us, ns = (fields.get(name) for name in _LAST)
    if ms is None or us is None or ns is None:
        return tuple(name for name in _LAST if fields.get(name) is not None)
    if ns == ms * 1_000_000 and us == ms * 1000:
        return ("ts_ms",)
    return _LAST


def _value(added: Added, metadata: _Told, *, is_gone: bool) -> Any:
    if added.name == DELETED:
        return "true" if is_gone else "false"
    return metadata.value(added)


def _schema(
    writer: RowWriter, base: str, row: Row, added: tuple[Added, ...], product: str | None
) -> Schema:
    """Return the schema of a row with its added fields."""
    members = [member for name, member in writer.fields.items() if name in row]
    members += [_added_schema(added_field, product) for added_field in added]
    return struct(tuple(members), name=f"{base}.Value")


def _added_schema(added: Added, product: str | None) -> Schema:
    """Return the schema of an added field: that of the envelope, made optional."""
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
    """Return a header as Connect's simple converter writes it."""
    return None if value is None else str(value).encode()


def _topic(event: DataChange) -> tuple[str, str]:
    """Return the topic of a row, and what its schema's name starts with."""
    stored_topic = event.details.get("topic")
    topic = topic_of(event.source, event.table) if stored_topic is None else str(stored_topic)
    return topic, str(event.details.get("name") or topic)


def _compare(event: DataChange, origin: Origin, report: Report) -> None:
    """Report in what an event differs from what a reader finds."""
    place = origin.place
    pairs: list[tuple[str, Any, Any]] = [
        *((f"table.{n}", getattr(event.table, n), getattr(place.table, n)) for n in _TABLE),
        *((f"source.{n}", getattr(event.source, n), getattr(place.source, n)) for n in _SOURCE),
        ("position", event.position, origin.position),
        ("transaction", event.transaction, origin.transaction),
        ("source_time", event.source_time_ns, origin.time_ns),
        ("process_time", event.process_time_ns, origin.process_ns),
    ]
    for field, first, second in pairs:
        if first != second:
            report((field, "no added field tells it"))


_TABLE: Final = ("database", "schema", "name")
_SOURCE: Final = ("product", "server", "version", "snapshot")


def _report_before(event: DataChange, report: Report) -> None:
    """Report the columns of a deleted row that a reader does not believe."""
    names = () if event.key is None else event.key.columns
    for name, value in (event.before or {}).items():
        if name not in names and value is not UNAVAILABLE:
            report(("before", "a reader believes the key of a deleted row only"))
            return
