# SPDX-License-Identifier: Apache-2.0
r"""``arcion-json``: the JSON CDC format of Arcion Replicant.

Product: Arcion Replicant, bought by Databricks in 2023; its documentation
(https://docs.arcion.io/docs/references/cdc-format/json-cdc-format/) exists in copies only. Version
studied: that page, with samples of MySQL 5.7 for snapshot and realtime mode.

Sample (payload; key and value are each ``{"schema":...,"payload":...}``)::

    {"before":{},"after":{"r_regionkey":10,"r_name":"Test_nation","r_comment":"ReplicationWorks"},
     "source":{"version":"5.7.41","connector":"MYSQL","name":"KAFKA_Connector",
      "ts_ms":1680798995000,"db":"tpch","schema":null,"table":"region","snapshot":"false",
      "server_id":"1","gtid":null,"file":"mysql-log.000013","pos":30407,"row":1,"thread":309,
      "query":"INSERT INTO tpch.region(...) VALUES(...)"},"op":"c","ts_ms":1680779196386}

Known gaps: source blocks of other databases than MySQL, and types beyond ``int32`` and ``string``,
are not documented; see ``docs/formats/arcion-json.md``.
"""

from enum import StrEnum
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.event import (
    INCREMENTAL_SNAPSHOT,
    ChangeEvent,
    Completeness,
    DataChange,
    Image,
    Key,
    KeyOrigin,
    Op,
    Source,
    Tombstone,
    is_incremental_read,
)
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.lane import NotPlainError
from changelane.formats.contract.row_writing import RowWriting
from changelane.formats.debezium_envelope.envelope_reader import (
    Draft,
    Member,
    MemberReader,
    Origin,
    PlainForm,
    is_envelope,
    keep_other_fields,
)
from changelane.formats.debezium_envelope.envelope_writer import (
    Layout,
    MemberWriter,
    Parts,
    milliseconds,
    part_of,
)
from changelane.formats.debezium_envelope.member_format import MemberFormat
from changelane.formats.debezium_envelope.member_lanes import MemberLanes
from changelane.formats.debezium_envelope.options import Tombstones
from changelane.formats.debezium_envelope.row_writing import row_writing
from changelane.formats.debezium_envelope.rows.connect_schema import parse, unwrap
from changelane.formats.debezium_envelope.rows.modes import (
    DecimalFormat,
    Modes,
    TimePrecisionMode,
    modes_of,
)
from changelane.formats.debezium_envelope.rows.placeholders import NO_PLACEHOLDER
from changelane.formats.debezium_envelope.rows.raw_json import NO_SCHEMA
from changelane.formats.debezium_envelope.rows.row_writer import Images
from changelane.formats.debezium_envelope.source_block import binlog_position, sanitised
from changelane.message import Message
from changelane.position import MySqlPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, option_for_table
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]


class AfterImage(StrEnum):
    """The applier's ``after-image-format``."""

    ALL = "all"
    UPDATED = "updated"


class BeforeImage(StrEnum):
    """The applier's ``before-image-format``."""

    ALL = "all"
    KEY = "key"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``arcion-json``.

    Attributes:
        connector_name: ``source.name`` of changes, and the first part of the names of schemas.
        snapshot_connector_name: The same in snapshot mode.
        row_identifier_key: Table name (or its last parts) -> the columns of Replicant's
            ``row-identifier-key``, for tables without primary and unique key.
        after_image: Applier's ``after-image-format``: ``all``, or ``updated`` for the key and the
            changed columns. With ``updated``, a reader does not take the columns of a message for
            all columns of the table.
        before_image: Applier's ``before-image-format``: ``all``, or ``key``.
        tombstones: Write a tombstone after a delete: ``auto`` = unless the event comes from Arcion
            (it has the database's version), because its stream contains the tombstone.
        source_ts_offset_ms: Added to ``source.ts_ms`` when reading, subtracted when writing: the
            documented samples have local time there.
    """

    connector_name: str = "KAFKA_Connector"
    snapshot_connector_name: str = "KAFKA_snapshot_connector"
    row_identifier_key: dict[str, list[str]] = {}
    after_image: AfterImage = AfterImage.ALL
    before_image: BeforeImage = BeforeImage.ALL
    tombstones: Tombstones = Tombstones.AUTO
    source_ts_offset_ms: int = 0


Row = TypeVar("Row")


class ArcionSource(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The source block of MySQL's samples; ``version`` is that of the database."""

    version: str | None = None
    connector: str | None = None
    name: str | None = None
    ts_ms: int | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    snapshot: str | None = None
    server_id: str | int | None = None
    gtid: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    thread: int | None = None
    query: str | None = None


class ArcionEnvelope(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """A row change; a missing image is ``{}``."""

    op: str
    source: ArcionSource
    before: Row | None = None
    after: Row | None = None
    ts_ms: int | None = None


_LAYOUT: Final = Layout(
    payload="before after source op! ts_ms:int64",
    source="version connector name ts_ms db schema table snapshot server_id gtid file pos row"
    " thread query",
    # the documented schema: another order, server_id is a number, and thread is missing
    source_schema="version! connector! name! ts_ms:int64 db schema table! query snapshot"
    " server_id:int64 gtid file pos:int64 row:int32",
    envelope_name="{base}.Envelope",
    row_names=("{base}.Value", "{base}.Value"),
    source_name="{name}",
    empty={},
    has_key_schema=True,
    # the documented schema of an empty image has all columns
    all_columns=True,
    attributes=tuple(
        "type optional field name version doc parameters default items keys values fields".split()
    ),
)

_CONNECTOR: Final = "arcion"
_TYPES: Final = frozenset(LogicalType.__subclasses__()) - {Unknown}
_CARRIES: Final = Carries(
    operations=frozenset(Op),
    kinds=frozenset({"tombstone"}),
    before=True,
    key_change_partial=True,
    absent=True,
    schema=SchemaDetail.FULL,
    column_flags=True,
    types=_TYPES,
    extremes=frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
    key=True,
    table=frozenset({"database", "schema", "name"}),
    positions=frozenset({"mysql"}),
    source=frozenset({"product", "snapshot"}),
    stamp=Source(connector=_CONNECTOR),
    source_time="ms",
    process_time="ms",
    details=True,
    other_images=True,
)


def _member(options: Options) -> Member:
    def read_source(draft: Draft) -> None:
        block: ArcionSource = draft.envelope.source
        names = _SOURCE_FIELDS if draft.position is not None else (*_SOURCE_FIELDS, *_COORDINATES)
        keep_other_fields(draft, {name: getattr(block, name) for name in names})

    def after_conversion(draft: Draft) -> None:
        base = draft.plan.base
        if base and base != _base(options, draft.source, draft.table):
            draft.details["name"] = base
        if draft.op is Op.UPDATE and options.after_image is AfterImage.UPDATED:
            draft.after_holds = Completeness.CHANGED
        columns = option_for_table(options.row_identifier_key, draft.table)
        if draft.key is None and columns is not None:
            row = draft.after or draft.before or {}
            if any(name not in row for name in columns):
                path = "$.after" if draft.after else "$.before"
                raise DecodeError(
                    "a key column is missing", code=ReasonCode.MISSING_FIELD, path=path
                )
            draft.key = Key(tuple(columns), KeyOrigin.CONFIG)

    return Member(
        envelope=ArcionEnvelope,
        integers=frozenset({"ts_ms", "pos", "row", "thread"}),
        place=("connector", "name", "snapshot", "db", "schema", "table"),
        origin_of=partial(_origin_of, options),
        position_of=binlog_position,
        plain=PlainForm(is_empty_object=True),
        read_source=read_source,
        after_conversion=after_conversion,
        source_offset_ms=options.source_ts_offset_ms,
    )


_SOURCE_FIELDS: Final = ("version", "server_id", "thread", "query")
_COORDINATES: Final = ("gtid", "file", "pos", "row")


def _origin_of(options: Options, block: ArcionSource) -> Origin:
    other_fields: dict[str, object] = {}
    product = None if block.connector is None else block.connector.lower()
    if product is not None and product.upper() != block.connector:
        other_fields["connector"] = block.connector
    snapshot = None if block.snapshot == "false" else block.snapshot
    if block.name != _name(options, snapshot):
        other_fields["name"] = block.name
    table = TableId(block.db, block.schema, block.table)
    return Origin(table, Source(product, _CONNECTOR, snapshot=snapshot), other_fields)


def _modes(product: str | None) -> Modes:
    return modes_of(TimePrecisionMode.AUTO, DecimalFormat.BASE64, product)


def _name(options: Options, snapshot: str | None) -> str:
    """Return the connector's name in the mode of an event."""
    return options.connector_name if snapshot is None else options.snapshot_connector_name


def _base(options: Options, source: Source, table: TableId) -> str:
    """Return the base of the names of a table's schemas."""
    parts = (_name(options, source.snapshot), table.database, table.schema, table.name)
    return ".".join(part for part in parts if part)


class Encoder:
    """Writes the events of one codec."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._writer = MemberWriter(_LAYOUT, _modes)

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        match event:
            case DataChange():
                return self._change(event, report)
            case Tombstone():
                return (self._writer.tombstone(event, report),)
            case _:
                raise EncodeError("arcion-json has row changes and tombstones only")

    def row_writing(self, change: DataChange) -> RowWriting:
        """Return how the messages of plain changes are written (:data:`WritingOf`).

        Raises:
            NotPlainError: Messages such as that of this change are not plain: with the option
                ``after_image``, columns are written if their values differ.
        """
        if self._options.after_image is AfterImage.UPDATED:
            raise NotPlainError
        writer = self._writer.row_writer(change)

        def messages_of(event: DataChange, _images: Images, report: Report) -> tuple[Message, ...]:
            event, parts = self._parts(event, report)
            images = Images(writer, event.before, event.after)
            return self._messages(event, images, parts, report)

        return row_writing(change, writer, NO_PLACEHOLDER, messages_of)

    def _change(self, event: DataChange, report: Report) -> tuple[Message, ...]:
        event, parts = self._parts(event, report)
        return self._messages(event, self._writer.images(event, report), parts, report)

    def _parts(self, event: DataChange, report: Report) -> tuple[DataChange, Parts]:
        """Return an event with the parts that its message has, and the parts beside its rows."""
        options, table = self._options, event.table
        snapshot = _snapshot(event, report)
        if snapshot is not None:
            event = _in_snapshot_mode(event, report)
        elif event.op is Op.READ:
            event = msgspec.structs.replace(event, op=Op.CREATE)
        source = msgspec.structs.replace(event.source, snapshot=snapshot)
        base = _base(options, source, table)
        block = {
            "connector": None if source.product is None else source.product.upper(),
            "name": _name(options, source.snapshot),
            "ts_ms": _with_offset(event.source_time_ns, -options.source_ts_offset_ms),
            "db": table.database,
            "schema": table.schema,
            "table": table.name,
            "snapshot": source.snapshot or "false",
        }
        position = event.position
        if isinstance(position, MySqlPosition):
            block |= {"file": position.file, "pos": position.pos, "row": position.row}
            block["gtid"] = position.gtid
        topic = sanitised("_".join(p for p in (table.database, table.schema, table.name) if p))
        parts = Parts(
            source=block,
            base=base,
            topic=topic or None,
            block=NO_SCHEMA,
            key=option_for_table(options.row_identifier_key, table),
        )
        return self._with_written_columns(event, report), parts

    def _messages(
        self, event: DataChange, images: Images, parts: Parts, report: Report
    ) -> tuple[Message, ...]:
        """Return the message of a change with encoded images, and its tombstone."""
        message = self._writer.message(event, images, parts, report)
        if event.op is Op.DELETE and self._adds_tombstone(event):
            return message, Message(None, message.key, topic=message.topic)
        return (message,)

    def _adds_tombstone(self, event: DataChange) -> bool:
        match self._options.tombstones:
            case Tombstones.TRUE:
                return True
            case Tombstones.FALSE:
                return False
            case Tombstones.AUTO:
                return "version" not in part_of(event.details, "source")

    def _with_written_columns(self, event: DataChange, report: Report) -> DataChange:
        """Return an event without the columns that the applier's settings exclude."""
        before, after = event.before, event.after
        if event.op is Op.UPDATE and self._options.after_image is AfterImage.UPDATED:
            after = _changed(event, after or {}, before)
            if after != event.after:
                report(("after", "only changed columns are written (option after_image)"))
        if before is not None and event.key and self._options.before_image is BeforeImage.KEY:
            before = {name: before[name] for name in event.key.columns if name in before}
            if before != event.before:
                report(("before", "only the key is written (option before_image)"))
        if before is event.before and after is event.after:
            return event
        return msgspec.structs.replace(event, before=before, after=after)


def _changed(event: DataChange, after: Image, before: Image | None) -> Image:
    """Return the key and the changed columns; all columns, if there is no before image."""
    if before is None:
        return after
    key = () if event.key is None else event.key.columns
    return {
        name: value
        for name, value in after.items()
        if name in key or name not in before or before[name] != value
    } or after


def _with_offset(time_ns: int | None, offset_ms: int) -> int | None:
    time_ms = milliseconds(time_ns)
    return None if time_ms is None else time_ms + offset_ms


def _snapshot(event: DataChange, report: Report) -> str | None:
    """Return the snapshot field: Arcion has ``true`` and ``false`` only."""
    snapshot = event.source.snapshot
    if snapshot is None and event.op is not Op.READ:
        return None
    if is_incremental_read(event):
        report(("operation:r", "written as an insert, because it is part of the stream"))
    if snapshot == INCREMENTAL_SNAPSHOT:
        report(("source.snapshot", "written as false"))
        return None
    if snapshot != "true":
        report(("source.snapshot", "written as true"))
    return "true"


def _in_snapshot_mode(event: DataChange, report: Report) -> DataChange:
    """Return a row of a snapshot without position and times, which are null in snapshot mode."""
    for field in ("position", "source_time_ns", "process_time_ns"):
        if getattr(event, field) is not None:
            report((field.removesuffix("_ns"), "null in snapshot mode"))
    return msgspec.structs.replace(event, position=None, source_time_ns=None, process_time_ns=None)


def _may_match(value: bytes, options: Options) -> bool:
    """Return whether the connector is in upper case, or has its name or the source block's."""
    if not is_envelope(value, (b'"op"', b'"source"')):
        return False
    block, payload = unwrap(value) or (None, value)
    source = json.loads(payload, _Sourced).source
    if source.connector is not None:
        return bool(source.connector) and source.connector == source.connector.upper()
    if source.name in {options.connector_name, options.snapshot_connector_name}:
        return True
    members = () if block is None else parse(block).members
    labels = {member.member: member.label for member in members}
    return source.name is not None and labels.get("source") == source.name


class _Sourced(msgspec.Struct):
    source: "_Named"


class _Named(msgspec.Struct):
    name: str | None = None
    connector: str | None = None


def make(options: Options) -> Format:
    """Return the format."""
    reader, encoder = MemberReader(_member(options)), Encoder(options)
    return MemberFormat(
        make,
        options,
        carries=_CARRIES,
        decode=reader.decode,
        encode=encoder.encode,
        may_match=partial(_may_match, options=options),
        # a lane would take the columns of a message for all columns of the table
        lanes=None if options.after_image is AfterImage.UPDATED else MemberLanes(reader),
        row_writing=encoder.row_writing,
    )
