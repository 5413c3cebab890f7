# SPDX-License-Identifier: Apache-2.0
"""The possible losses of a conversion between two formats, determined with probes.

A probe is an event with a few features of the source format. The losses that the target format
reports for all probes are the possible losses of the conversion, in the terms of a run's loss
report.
"""

import datetime as dt
import decimal
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from changelane.codec import Codec, OnLoss
from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Key,
    KeyOrigin,
    LogicalMessage,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.losses import Loss
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    Position,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    TimePosition,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    UNAVAILABLE,
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    Geometry,
    GeometryType,
    Instant,
    InstantType,
    Integer,
    Interval,
    LogicalType,
    Map,
    Record,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Unknown,
    Uuid,
    Value,
    Xml,
    Year,
)

_TABLE: Final = TableId("shop", "public", "orders")
_ID: Final = Column("id", Integer(32), nullable=False)
_NOTE: Final = Column("note", String())

_POSITIONS: Final[tuple[Position, ...]] = (
    MySqlPosition("binlog.000001", 4),
    PostgresPosition(1),
    ScnPosition(1),
    LsnPosition("0000002a:00000001:0001"),
    SequencePosition(1),
    OffsetPosition("orders", 0, 1),
    TimePosition(1, 1),
)

_NOON_NS: Final = 1_704_110_400_000_000_000
_NOON: Final = dt.datetime(2024, 1, 1, 12)
_SAMPLES: Final[dict[type[LogicalType], tuple[LogicalType, Value]]] = {
    Boolean: (Boolean(), True),
    Integer: (Integer(64), 1),
    Decimal: (Decimal(10, 2), decimal.Decimal("1.50")),
    Float: (Float(64), 1.5),
    Bytes: (Bytes(), b"\x01"),
    Date: (Date(), _NOON.date()),
    Timestamp: (Timestamp(6), _NOON),
    InstantType: (InstantType(6), Instant.of(_NOON.replace(tzinfo=dt.UTC), 6)),
    Year: (Year(), 2024),
    Interval: (Interval("us"), dt.timedelta(1)),
    GeometryType: (GeometryType(), Geometry(b"\x01")),
    Array: (Array(Integer(32)), [1]),
    Map: (Map(String(), String()), [("a", "b")]),
    Record: (Record((("a", String()),)), {"a": "b"}),
    Text: (Text("ltree"), "a.b"),
    Unknown: (Unknown(), "1"),
    Time: (Time(6), "10:00:00"),
    TimeTz: (TimeTz(6), "10:00:00Z"),
    Uuid: (Uuid(), "00112233-4455-6677-8899-aabbccddeeff"),
    Xml: (Xml(), "<a/>"),
}
_EXTREMES: Final[dict[Extreme, tuple[tuple[LogicalType, Value], ...]]] = {
    Extreme.NON_FINITE: ((Float(64), float("nan")),),
    Extreme.NON_FINITE_DECIMAL: ((Decimal(), decimal.Decimal("NaN")),),
    Extreme.TEMPORAL_TEXT: (
        (Date(), "infinity"),
        (Date(), "-0043-03-15"),
        (Date(), "0000-00-00"),
        (Timestamp(6), "infinity"),
        (Timestamp(6), "-0043-03-15T12:00:00"),
        (Timestamp(6), "+294276-12-31T23:59:59.999999"),
        (Timestamp(9), "2024-01-01T12:00:00.123456789"),
        (Timestamp(0), "0000-00-00 00:00:00"),
        (InstantType(6), "infinity"),
        (InstantType(0), "0000-00-00 00:00:00"),
    ),
}
# Values that only some databases have; a format with the type may receive them.
_OUT_OF_RANGE: Final[dict[type[LogicalType], tuple[tuple[LogicalType, Value], ...]]] = {
    Time: ((Time(0), "838:59:59"), (Time(0), "-838:59:59"), (Time(6), "24:00:00")),
    Integer: ((Integer(64, unsigned=True), 2**64 - 1),),
    Decimal: (
        (Decimal(76, 10), decimal.Decimal("9" * 66 + "." + "9" * 10)),
        (Decimal(5, -2), decimal.Decimal("1.2E+3")),
        (Decimal(), decimal.Decimal("0.1")),
    ),
    Bits: ((Bits(), "001"), (Bits(64), "1" * 64)),
    Set: ((Set(("a", "b")), "a,b"),),
    Enum: ((Enum(("a", "b")), ""),),
}


def losses_between(source: Codec, target: Codec) -> tuple[Loss, ...]:
    """Return the possible losses of a conversion from *source* to *target*, each once."""
    probe_losses: dict[Loss, None] = {}
    for event in _probe_events(source):
        try:
            losses = target.encode(event, on_loss=OnLoss.IGNORE).losses
        except EncodeError as error:
            losses = (("event", str(error)), *_losses_with_names(target, event))
        probe_losses.update(dict.fromkeys(losses))
    return tuple(probe_losses)


def _losses_with_names(target: Codec, event: ChangeEvent) -> tuple[Loss, ...]:
    """Return the losses of a rejected row after the user named its database or its key.

    The result is empty if the target rejects the row then, too.
    """
    if not isinstance(event, DataChange):
        return ()
    table = msgspec.structs.replace(event.table, database=event.table.database or _TABLE.database)
    key = event.key or Key((_ID.name,), KeyOrigin.CONFIG)
    for names in ({"table": table}, {"key": key}, {"table": table, "key": key}):
        with suppress(EncodeError):
            named = msgspec.structs.replace(event, **names)
            return target.encode(named, on_loss=OnLoss.IGNORE).losses
    return ()


@lru_cache(maxsize=2)
def _probe_events(source: Codec) -> tuple[ChangeEvent, ...]:
    """Return what the source can express of its probes: the same for every target."""
    return tuple(
        event for probe in probes(source.carries) for event in _expressible_events(source, probe)
    )


def _expressible_events(source: Codec, probe: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return the part of a probe that the source can express; empty if there is none."""
    try:
        encode_losses = source.encode(probe, on_loss=OnLoss.IGNORE).losses
    except EncodeError:
        return ()
    reduced, known_losses = source.reduce(probe)
    is_late = any(
        loss not in known_losses and loss[0].startswith("value:") for loss in encode_losses
    )
    if is_late:
        return ()
    if source.carries.column_flags and not source.carries.unknown_nullability:
        return tuple(map(_with_nullability, reduced))
    return reduced


def _with_nullability(event: ChangeEvent) -> ChangeEvent:
    """Return an event as a format reads it whose columns may be NULL or not."""
    if isinstance(event, HalfUpdate):
        return msgspec.structs.replace(event, change=_with_nullability(event.change))
    if not isinstance(event, DataChange) or event.schema is None:
        return event
    columns = tuple(
        msgspec.structs.replace(column, nullable=column.nullable is not False)
        for column in event.schema.columns
    )
    return msgspec.structs.replace(event, schema=TableSchema(columns))


def probes(carries: Carries) -> Iterator[ChangeEvent]:
    """Yield events that together use every feature of a declaration."""
    yield from _rows(carries)
    yield from _images(carries)
    yield from _values(carries)
    yield from _others(carries)
    for position in _POSITIONS:
        if position.__struct_config__.tag in carries.positions:
            yield _change(position=position)


def _change(op: Op = Op.CREATE, **fields: object) -> DataChange:
    image = {"id": 1, "note": "a"}
    parts: dict[str, object] = {
        "key": Key(("id",)),
        "before": image if op in {Op.UPDATE, Op.DELETE} else None,
        "after": None if op is Op.DELETE else image,
        "schema": TableSchema((_ID, _NOTE)),
    }
    change: DataChange = msgspec.structs.replace(
        DataChange(op, TableId(name=_TABLE.name)), **(parts | fields)
    )
    return change


def _rows(carries: Carries) -> Iterator[ChangeEvent]:
    for op in Op:
        if op in carries.operations:
            yield _change(op)
    yield _change(table=_TABLE)
    yield _change(transaction=Transaction("7", 1, 1, 2, last=True))
    yield _change(source=Source("postgresql", "debezium", "shop", "3.0", "true"))
    # one unit more than a full hour, so that a target with a coarser unit has a loss
    units = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    if carries.source_time:
        yield _change(source_time_ns=_NOON_NS + units[carries.source_time])
    if carries.process_time:
        yield _change(process_time_ns=_NOON_NS + units[carries.process_time])
    if carries.details:
        yield _change(details={"extra": "1"})


def _images(carries: Carries) -> Iterator[ChangeEvent]:
    full = {"id": 1, "note": "a"}
    if carries.before:
        yield _change(Op.UPDATE)
    if carries.partial_before:
        yield _change(Op.UPDATE, before={"id": 1})
    if carries.delete_partial:
        yield _change(Op.DELETE, before={"id": 1})
    if carries.absent:
        yield _change(Op.UPDATE, before=None, after={"id": 1})
    if carries.unavailable:
        yield _change(Op.UPDATE, before=None, after=full | {"note": UNAVAILABLE})
    if carries.key_change:
        yield _change(Op.UPDATE, after=full | {"id": 2})
    if carries.partial_after:
        yield _change(Op.UPDATE, before=None, after={"id": 1}, schema=None)
    if carries.schema is SchemaDetail.NONE:
        completeness = Completeness.FULL
        yield _change(Op.UPDATE, schema=None, before_holds=completeness, after_holds=completeness)


def _values(carries: Carries) -> Iterator[ChangeEvent]:
    if carries.schema is SchemaDetail.NONE:
        return
    for kind in sorted(carries.types, key=lambda kind: kind.__name__):
        sample, value = _SAMPLES.get(kind) or (kind(), "1")
        yield _with_value(sample, value)
    for extreme in sorted(carries.extremes):
        for beyond in _EXTREMES[extreme]:
            if type(beyond[0]) in carries.types:
                yield _with_value(*beyond)
    for kind in sorted(carries.types & _OUT_OF_RANGE.keys(), key=lambda kind: kind.__name__):
        for beyond in _OUT_OF_RANGE[kind]:
            yield _with_value(*beyond)
    if carries.column_flags:
        flagged = msgspec.structs.replace(_NOTE, nullable=True, generated=True, default="-")
        yield _change(schema=TableSchema((_ID, flagged)))


def _with_value(kind: LogicalType, value: Value) -> DataChange:
    schema = TableSchema((_ID, Column("note", kind)))
    return _change(schema=schema, after={"id": 1, "note": value})


def _others(carries: Carries) -> Iterator[ChangeEvent]:
    schema = TableSchema((_ID,))
    every: dict[str, ChangeEvent] = {
        "half": HalfUpdate(_change(), {"id": 2}),
        "schema": SchemaChange(_TABLE, "alter", "ALTER TABLE orders ADD note TEXT"),
        "truncate": Truncate(_TABLE),
        "transaction": TransactionMarker("begin", Transaction("7")),
        "watermark": Watermark(),
        "message": LogicalMessage("prefix", b"content"),
        "tombstone": Tombstone(_TABLE, {"id": 1}, schema),
        "control": Control("other"),
    }
    for kind, event in every.items():
        if kind in carries.kinds:
            yield event
