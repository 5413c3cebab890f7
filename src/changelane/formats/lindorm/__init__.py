# SPDX-License-Identifier: Apache-2.0
"""``lindorm-json``: the messages of Lindorm's change tracking, in its "Debezium Format V2.0".

Product: Alibaba Cloud Lindorm, SQL and HBase tables
(https://www.alibabacloud.com/help/en/lindorm/user-guide/data-format). Versions studied: ``v1.0``
and ``v2.0`` of ``source.version``, from that page of 2024-10-16.

Sample::

    {"schema":{},"payload":{"op":"u","ts_ms":1465491411815,
     "before":{"id":"1004","first_name":"Anne Marie","last_name":"Kretchmar"},
     "after":{"id":"1004","first_name":"Anne Marie"},
     "source":{"version":"v1.0","db":"ld-xxxx","namespace":"default","table":"customers",
      "ts_ms":1465491411807}}}

The column ``last_name`` was deleted: a missing column always has this cause.

Known gaps: types and the message key are not documented; see ``docs/formats/lindorm-json.md``.
"""

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, Completeness, DataChange, Key, KeyOrigin, Op, Source
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.lane import NotPlainError
from changelane.formats.contract.row_writing import RowWriting
from changelane.formats.debezium_envelope.envelope_reader import (
    Draft,
    Member,
    MemberReader,
    Origin,
    PlainForm,
    keep_other_fields,
)
from changelane.formats.debezium_envelope.envelope_writer import (
    Layout,
    MemberWriter,
    Parts,
    milliseconds,
)
from changelane.formats.debezium_envelope.member_format import MemberFormat
from changelane.formats.debezium_envelope.row_writing import row_writing
from changelane.formats.debezium_envelope.rows.connect_schema import unwrap
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.placeholders import NO_PLACEHOLDER
from changelane.formats.debezium_envelope.rows.row_writer import Images, RowWriter
from changelane.formats.lindorm.lanes import LindormLanes
from changelane.formats.lindorm.options import AbsentAfter, Options, Order, SchemaBlock, TableKind
from changelane.formats.lindorm.rows import (
    ROW,
    HBase,
    as_text,
    field_schemas,
    hbase_schema,
    is_written_as_text,
    position_at,
    report_types,
    schema_of_images,
    with_schema_types,
    without_deleted_columns,
)
from changelane.message import Message
from changelane.position import TimePosition
from changelane.schema import TableId, TableSchema, option_for_table
from changelane.types import Boolean, Bytes, Float, Integer, String

__all__ = ["Options", "make"]

Row = TypeVar("Row")


class LindormSource(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The source block; ``db`` is the id of the instance."""

    version: str | None = None
    db: str | None = None
    namespace: str | None = None
    table: str | None = None
    ts_ms: int | None = None


class LindormEnvelope(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """A row change."""

    op: str
    source: LindormSource
    before: Row | None = None
    after: Row | None = None
    ts_ms: int | None = None


_LAYOUT: Final = Layout(
    payload="op! ts_ms:int64! before after source",
    source="version! db! namespace! table! ts_ms:int64!",
    same_rows=True,
)
_ORIGIN: Final = Source(product="lindorm", connector="lindorm")
_EMPTY_BLOCK: Final = b"{}"

_CARRIES: Final = Carries(
    # "r: full data is exported. This value is not available": it is read, and never written
    operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
    before=True,
    key_change_partial=True,
    absent=True,  # the encoder reports missing columns that would be read as deleted
    absent_means=AbsentMeans.NULL,
    schema=SchemaDetail.FULL,
    column_flags=True,
    types=frozenset({Boolean, Bytes, Float, Integer, String}),
    extremes=frozenset({Extreme.NON_FINITE}),
    key=True,
    table=frozenset({"database", "schema", "name"}),
    positions=frozenset({"time"}),
    stamp=_ORIGIN,
    source_time="ms",
    process_time="ms",
    details=True,
    other_images=True,
)


def _member(options: Options) -> Member:
    hbase = HBase(options)

    def read_source(draft: Draft) -> None:
        keep_other_fields(draft, {"version": draft.envelope.source.version})

    def after_conversion(draft: Draft) -> None:
        images = hbase.read(draft.table, (draft.before, draft.after, draft.key_row))
        if images is not None:
            draft.before, draft.after, draft.key_row = images
            row = {**(draft.before or {}), **(draft.after or {})}
            draft.schema = hbase_schema(tuple(row or draft.key_row or ()))
        _set_deleted_columns(draft, options)
        _set_key(draft, options, is_hbase=images is not None)
        if options.order is Order.SOURCE_TIME:
            draft.position = position_at(draft.envelope.source.ts_ms, draft.offset)

    return Member(
        envelope=LindormEnvelope,
        integers=frozenset({"ts_ms"}),
        place=("db", "namespace", "table"),
        origin_of=_origin_of,
        plain=PlainForm(detail="version"),
        read_source=read_source,
        after_conversion=after_conversion,
    )


def _origin_of(block: LindormSource) -> Origin:
    return Origin(TableId(block.db, block.namespace, block.table), _ORIGIN)


def _set_deleted_columns(draft: Draft, options: Options) -> None:
    """Set columns to NULL that are missing in an update's after image: they were deleted.

    A column that both images lack stays missing, and so do missing columns of other operations.
    """
    after, before = draft.after, draft.before
    if draft.op is not Op.UPDATE or after is None:
        return
    if before is not None:
        for name in before:
            after.setdefault(name, None)
    elif options.absent_after is AbsentAfter.UNCHANGED:
        draft.after_holds = Completeness.CHANGED
    elif draft.schema is not None:
        for column in draft.schema.columns:
            after.setdefault(column.name, None)


def _set_key(draft: Draft, options: Options, *, is_hbase: bool) -> None:
    """Set the key of a change without a message key: the option ``keys``, else ``ROW`` of HBase.

    "The column name of the primary key column is fixed to ROW": another message key is ignored.
    """
    row = draft.after or draft.before or draft.key_row or {}
    if draft.key is not None and not (is_hbase and row.keys().isdisjoint(draft.key.columns)):
        return
    columns = option_for_table(options.keys, draft.table)
    if columns and all(name in row for name in columns):
        draft.key = Key(tuple(columns), KeyOrigin.CONFIG)
    elif is_hbase:
        draft.key = Key((ROW,), KeyOrigin.PAYLOAD)


class Encoder:
    """Writes the events of one codec."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._hbase = HBase(options)
        self._writer = MemberWriter(_LAYOUT, _modes, fields=_fields)

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError("lindorm-json has row changes only")
        is_hbase = self._hbase.is_written(event)
        wire_event = self._hbase.write(event, report) if is_hbase else event
        report_types(wire_event.schema, wire_event, report)
        wire_event = without_deleted_columns(with_schema_types(wire_event), report)
        wire_event = self._with_schema(wire_event)
        if not is_hbase and any(
            image is not None and ROW in image and self._hbase.is_read_as_hbase(image)
            for image in (wire_event.before, wire_event.after)
        ):
            report(("value", "read as a row of an HBase table; set the option tables"))
        images = self._writer.images(wire_event, report)
        return (self._message(wire_event, images, report, is_hbase=is_hbase),)

    def row_writing(self, change: DataChange) -> RowWriting:
        """Return how the messages of plain changes are written (:data:`WritingOf`).

        Raises:
            NotPlainError: Messages such as that of this change are not plain: the row may be that
                of an HBase table.
        """
        schema = change.schema
        names = (change.after or change.before or {}).keys() if schema is None else schema.names
        if ROW in names and self._options.tables is not TableKind.SQL:
            raise NotPlainError
        wire_change = with_schema_types(change)
        writer = self._writer.row_writer(wire_change)

        def messages_of(event: DataChange, _images: Images, report: Report) -> tuple[Message, ...]:
            report_types(schema, event, report)
            event = without_deleted_columns(event, report)
            images = Images(writer, event.before, event.after)
            if schema is None:
                event = self._with_schema(event)
                images = _untyped_images(event, self._writer.row_writer(event))
            return (self._message(event, images, report, is_hbase=False),)

        return _with_texts(row_writing(wire_change, writer, NO_PLACEHOLDER, messages_of), schema)

    def _with_schema(self, event: DataChange) -> DataChange:
        """Return an event with a schema for its block, inferred from its values if it has none."""
        if event.schema is not None or self._options.schema is not SchemaBlock.FULL:
            return event
        schema = schema_of_images(event.before, event.after)
        return msgspec.structs.replace(event, schema=schema)

    def _message(
        self, event: DataChange, images: Images, report: Report, *, is_hbase: bool
    ) -> Message:
        """Return the message of a change with encoded images."""
        options, table, source_ms = self._options, event.table, milliseconds(event.source_time_ns)
        if isinstance(event.position, TimePosition) and event.position.time_ms != source_ms:
            report(("position", "its time differs from the source time"))
        source_fields = {
            "version": options.version or ("v2.0" if is_hbase else "v1.0"),
            "db": table.database,
            "namespace": table.schema,
            "table": table.name,
            "ts_ms": source_ms,
        }
        parts = Parts(
            source=source_fields,
            has_schema=options.schema is SchemaBlock.FULL,
            block=None if options.schema is SchemaBlock.NONE else _EMPTY_BLOCK,
            key=option_for_table(options.keys, table),
            topic=None,
        )
        return self._writer.message(event, images, parts, report)


def _untyped_images(event: DataChange, writer: RowWriter) -> Images:
    """Return the images of an event with an inferred schema: its values are their own JSON."""
    before, after = (
        None if image is None else writer.ordered(image) for image in (event.before, event.after)
    )
    if not (before if event.op is Op.DELETE else after):
        raise NotPlainError
    return Images(writer, before, after)


def _with_texts(writing: RowWriting, schema: TableSchema | None) -> RowWriting:
    """Return how rows are written, with the columns of a schema that are written as text."""
    columns = tuple(
        msgspec.structs.replace(column_writing, write=as_text)
        if is_written_as_text(column)
        else column_writing
        for column_writing, column in zip(
            writing.columns, () if schema is None else schema.columns, strict=True
        )
    )
    return msgspec.structs.replace(writing, columns=columns)


class _Probe(msgspec.Struct):
    source: dict[str, Any]


def _fields(schema: TableSchema | None, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return raw if schema is None else field_schemas(schema)


def _modes(product: str | None) -> Modes:
    del product  # types have no semantic names in this format, and so no modes
    return Modes()


def _may_match(value: bytes) -> bool:
    """Return whether a message has a namespace, and no connector."""
    if b'"namespace"' not in value:
        return False
    wrapped = unwrap(value)
    source = json.loads(value if wrapped is None else wrapped[1], _Probe).source
    return "namespace" in source and "connector" not in source


def make(options: Options) -> Format:
    """Return the format."""
    reader, encoder = MemberReader(_member(options)), Encoder(options)
    is_partial = options.absent_after is AbsentAfter.UNCHANGED
    return MemberFormat(
        make,
        options,
        carries=_CARRIES,
        decode=reader.decode,
        encode=encoder.encode,
        may_match=_may_match,
        # a lane would take the columns of a message for all columns of the table
        lanes=None if is_partial else LindormLanes(reader, options),
        row_writing=encoder.row_writing,
    )
