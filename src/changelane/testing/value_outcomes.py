# SPDX-License-Identifier: Apache-2.0
"""The fate of a value of a source type in a format: equal, equal as another type, or reported.

A :class:`Row` is a column of MySQL, PostgreSQL or Oracle with one value, ordinary or extreme.
:func:`outcome` encodes and decodes it in a format. A value that changes without a reported loss is
:attr:`Fate.SILENT`, which no format may have.
"""

import datetime as dt
import decimal
from enum import StrEnum
from typing import Final

import msgspec

from changelane.codec import Codec, OnLoss
from changelane.errors import EncodeError
from changelane.event import DataChange, Key, Op, Source
from changelane.formats.contract.losses import Loss
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import (
    decode_all,
    insignificant_zeros,
    same_value,
    stripped,
    without_echoes,
)
from changelane.types import (
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
    Json,
    LogicalType,
    Map,
    Record,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Value,
    Xml,
    Year,
)
from changelane.types.values import value_text


class Fate(StrEnum):
    """The fate of a value in a format.

    Exact; exact, but reported because the product of the format has no such value; exact as another
    type; lossy and reported; rejected; or changed without a report.
    """

    EXACT = "exact"
    FOREIGN = "exact, reported"
    OTHER_TYPE = "exact as"
    LOSSY = "lossy"
    REFUSED = "refused"
    SILENT = "SILENT"


class Row(msgspec.Struct, frozen=True):
    """A column and a value of it.

    Attributes:
        title: A description of the value, if the type alone does not describe it.
        source_type: The type text of the source.
    """

    product: str
    source_type: str
    title: str
    kind: LogicalType
    value: Value


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a row in a format.

    Attributes:
        type: The type of the decoded value, if it differs.
        reports: The losses or the error of the format.
    """

    fate: Fate
    type: str = ""
    reports: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"exact as {self.type}" if self.fate is Fate.OTHER_TYPE else self.fate.value


_POINT: Final = Geometry(bytes.fromhex("0101000000000000000000f03f0000000000000040"))
_DAY: Final = dt.date(2024, 2, 29)
_MOMENT: Final = dt.datetime(2024, 2, 29, 23, 59, 58, 123456)
_INSTANT: Final = Instant.of(_MOMENT.replace(tzinfo=dt.UTC), 6)
_ASTRAL: Final = "\U0001f600 \u8868"


def _nines(integer_digits: int, fraction: int) -> decimal.Decimal:
    return decimal.Decimal("9" * integer_digits + "." + "9" * fraction)


def _rows(product: str, *rows: tuple[str, str, LogicalType, Value]) -> tuple[Row, ...]:
    return tuple(Row(product, *row) for row in rows)


ROWS: Final = (
    *_rows(
        "mysql",
        ("tinyint(1)", "", Integer(8), 1),
        ("smallint", "", Integer(16), -(2**15)),
        ("mediumint", "", Integer(32), 2**23 - 1),
        ("int", "", Integer(32), -(2**31)),
        ("int unsigned", "", Integer(32, unsigned=True), 2**32 - 1),
        ("bigint", "", Integer(64), -(2**63)),
        ("bigint unsigned", "2^64 - 1", Integer(64, unsigned=True), 2**64 - 1),
        ("decimal(10,2)", "", Decimal(10, 2), decimal.Decimal("-1.50")),
        (
            "decimal(65,30)",
            "65 digits",
            Decimal(65, 30),
            decimal.Decimal("9" * 35 + "." + "9" * 30),
        ),
        ("float", "", Float(32), 1.5),
        ("double", "", Float(64), 1.7976931348623157e308),
        ("bit(1)", "", Bits(1), "1"),
        ("bit(64)", "all ones", Bits(64), "1" * 64),
        ("date", "", Date(), _DAY),
        ("date", "0000-00-00", Date(), "0000-00-00"),
        ("date", "2024-00-00", Date(), "2024-00-00"),
        ("datetime(6)", "", Timestamp(6), _MOMENT),
        ("datetime", "0000-00-00 00:00:00", Timestamp(0), "0000-00-00 00:00:00"),
        ("timestamp(6)", "", InstantType(6), _INSTANT),
        ("timestamp", "0000-00-00 00:00:00", InstantType(0), "0000-00-00 00:00:00"),
        ("time(6)", "", Time(6), "23:59:58.123456"),
        ("time", "838:59:59", Time(0), "838:59:59"),
        ("time", "-838:59:59", Time(0), "-838:59:59"),
        ("year", "", Year(), 2024),
        ("year", "0000", Year(), 0),
        ("varchar(20)", "four-byte UTF-8", String(), _ASTRAL),
        ("varchar(20)", "empty", String(), ""),
        ("varchar(20)", "NULL", String(), None),
        ("longtext", "line ends, NUL", String(), 'a\r\n\t\u0000"\\b'),
        ("varbinary(20)", "no UTF-8", Bytes(), b"\xff\xfe\x00a"),
        ("blob", "empty", Bytes(), b""),
        ("enum('a','b')", "", Enum(("a", "b")), "b"),
        ("enum('a','b')", "'' (an error value)", Enum(("a", "b")), ""),
        ("set('a','b')", "", Set(("a", "b")), "a,b"),
        ("set('a','b')", "empty", Set(("a", "b")), ""),
        ("set('a','b')", "a member twice", Set(("a", "b")), "a,a"),
        ("json", "", Json(), '{"a":[1,null,18446744073709551615]}'),
        ("point", "", GeometryType("point"), _POINT),
    ),
    *_rows(
        "postgresql",
        ("boolean", "", Boolean(), True),
        ("bigint", "", Integer(64), 2**63 - 1),
        ("numeric(38,38)", "38 digits", Decimal(38, 38), decimal.Decimal("0." + "9" * 38)),
        (
            "numeric(76,10)",
            "76 digits",
            Decimal(76, 10),
            decimal.Decimal("9" * 66 + "." + "9" * 10),
        ),
        ("numeric", "no scale", Decimal(), decimal.Decimal("1.500")),
        ("numeric", "NaN", Decimal(), decimal.Decimal("NaN")),
        ("numeric", "Infinity", Decimal(), decimal.Decimal("Infinity")),
        ("double precision", "NaN", Float(64), float("nan")),
        ("double precision", "-Infinity", Float(64), float("-inf")),
        ("double precision", "-0", Float(64), -0.0),
        ("bit(12)", "leading zeros", Bits(12), "000000000101"),
        ("bit varying", "leading zeros", Bits(), "00101"),
        ("date", "infinity", Date(), "infinity"),
        ("date", "BC", Date(), "-0043-03-15"),
        ("timestamp", "-infinity", Timestamp(6), "-infinity"),
        ("timestamp", "BC", Timestamp(6), "-0043-03-15T12:00:00"),
        ("timestamp", "year 294276", Timestamp(6), "+294276-12-31T23:59:59.999999"),
        ("timestamptz", "", InstantType(6), _INSTANT),
        ("timestamptz", "infinity", InstantType(6), "infinity"),
        ("timestamptz", "BC", InstantType(6), "-0043-03-15T12:00:00Z"),
        ("time", "24:00:00", Time(6), "24:00:00"),
        ("timetz", "", TimeTz(6), "10:00:00.5+05:30"),
        ("interval", "", Interval(), "P1Y2M3DT4H5M6.789S"),
        ("text", "empty", String(), ""),
        ("text", "NULL", String(), None),
        ("bytea", "", Bytes(), b"\x00\xff"),
        ("uuid", "", Uuid(), "00112233-4455-6677-8899-aabbccddeeff"),
        ("jsonb", "", Json(), '{"a": 1.0}'),
        ("xml", "", Xml(), "<a/>"),
        ("inet", "", Text("inet"), "10.0.0.1/8"),
        ("integer[]", "with NULL", Array(Integer(32)), [1, None, 3]),
        ("hstore", "", Map(String(), String()), [("a", "1"), ("b", None)]),
        (
            "(a integer, b text)",
            "composite",
            Record((("a", Integer(32)), ("b", String()))),
            {"a": 1, "b": "x"},
        ),
        ("geometry", "srid 4326", GeometryType(), Geometry(_POINT.wkb, 4326)),
    ),
    *_rows(
        "oracle",
        ("NUMBER(38,0)", "38 digits", Decimal(38, 0), decimal.Decimal("9" * 38)),
        ("NUMBER(5,-2)", "negative scale", Decimal(5, -2), decimal.Decimal("1.2E+3")),
        ("NUMBER", "no scale", Decimal(), decimal.Decimal("0.1")),
        ("BINARY_DOUBLE", "", Float(64), 0.1),
        ("BINARY_DOUBLE", "Infinity", Float(64), float("inf")),
        ("DATE", "", Timestamp(0), _MOMENT.replace(microsecond=0)),
        ("DATE", "BC", Timestamp(0), "-4711-01-01T00:00:00"),
        ("TIMESTAMP(9)", "nanoseconds", Timestamp(9), "2024-02-29T23:59:58.123456789"),
        (
            "TIMESTAMP(9) WITH TIME ZONE",
            "nanoseconds",
            InstantType(9),
            "2024-02-29T23:59:58.123456789+05:30",
        ),
        ("INTERVAL DAY TO SECOND", "", Interval("us"), dt.timedelta(1, 2, 3)),
        ("INTERVAL YEAR TO MONTH", "", Interval(), "P1Y2M"),
        ("VARCHAR2(20)", "NULL (Oracle's empty text)", String(), None),
        ("CLOB", "four-byte UTF-8", String(), _ASTRAL),
        ("RAW(16)", "", Bytes(), b"\x00\xff"),
    ),
)
"""Every source type with an ordinary value and with difficult values."""

_ID: Final = Column("id", Integer(32), "int", nullable=False)
_NAME: Final = "v"


def _event(columns: tuple[Column, ...], image: dict[str, Value], product: str) -> DataChange:
    return DataChange(
        Op.CREATE,
        TableId("shop", "public", "t"),
        key=Key(("id",)),
        after=image,
        schema=TableSchema(columns),
        source=Source(product),
    )


def event_of(row: Row) -> DataChange:
    """Return an insert of a key and the row's value, in the column ``v``."""
    column = Column(_NAME, row.kind, row.source_type)
    return _event((_ID, column), {"id": 1, _NAME: row.value}, row.product)


def outcome(codec: Codec, row: Row) -> Outcome:
    """Return the outcome of a row in a format."""
    event = event_of(row)
    try:
        encoded = codec.encode(event, on_loss=OnLoss.IGNORE)
    except EncodeError as error:
        return Outcome(Fate.REFUSED, reports=(str(error),))
    losses = tuple(f"{field}: {reason}" for field, reason in _own(codec, row, encoded.losses))
    events = without_echoes(decode_all(codec, encoded.messages))
    if len(events) != 1 or not isinstance(events[0], DataChange):
        return Outcome(Fate.SILENT, reports=("decoding does not give one row change",))
    return _compared(codec, event, events[0], losses)


def _own(codec: Codec, row: Row, losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return the losses of the column, without those of every event in the format."""
    usual = codec.encode(_event((_ID,), {"id": 1}, row.product), on_loss=OnLoss.IGNORE).losses
    return tuple(loss for loss in losses if loss not in usual)


def _compared(codec: Codec, event: DataChange, got: DataChange, losses: tuple[str, ...]) -> Outcome:
    reduced = codec.reduce(event)[0][0]
    after, schema = got.after or {}, got.schema
    if not isinstance(reduced, DataChange) or reduced.after is None or _NAME not in after:
        return Outcome(Fate.LOSSY if losses else Fate.SILENT, reports=losses)
    zeros = insignificant_zeros(event.schema).get(_NAME)
    want_value, got_value = ((event.after or {})[_NAME], after[_NAME])
    kind = "text" if schema is None else str(schema.by_name[_NAME].type)
    column = (event.schema or TableSchema(())).by_name[_NAME]
    own = str(column.type)
    if same_value(stripped(zeros, got_value), stripped(zeros, want_value)):
        if kind != own and want_value is not None:
            return Outcome(Fate.OTHER_TYPE, kind, losses)
        is_foreign = any(loss.startswith("value:") for loss in losses)
        return Outcome(Fate.FOREIGN if is_foreign else Fate.EXACT, reports=losses)
    if not losses and schema is not None:
        return Outcome(Fate.SILENT, kind, (f"{own} changes without a report",))
    as_written = reduced.after[_NAME]
    if as_written is not None and same_value(got_value, as_written):
        return Outcome(Fate.OTHER_TYPE, kind, losses)
    if losses and _is_equivalent(got_value, want_value, column.type):
        return Outcome(Fate.OTHER_TYPE, kind, losses)
    return Outcome(Fate.LOSSY if losses else Fate.SILENT, reports=losses)


def _is_equivalent(got_value: Value, want_value: Value, kind: LogicalType) -> bool:
    """Whether a value represents another one in another type."""
    match want_value, got_value:
        case (dt.datetime(tzinfo=None), dt.datetime(tzinfo=dt.tzinfo())):
            return got_value == want_value.replace(tzinfo=dt.UTC)
        case (dt.datetime(), _):
            return False
        case (dt.date(), dt.datetime(tzinfo=dt.tzinfo())):
            return got_value == dt.datetime(
                want_value.year, want_value.month, want_value.day, tzinfo=dt.UTC
            )
        case (str(), bool()):
            return isinstance(kind, Bits) and want_value == str(int(got_value))
        case (float(), decimal.Decimal()):
            return got_value == decimal.Decimal(repr(want_value))
        case (int(), int() | decimal.Decimal()) | (decimal.Decimal(), int()):
            return got_value == want_value
        case (_, str()):
            return want_value is not None and got_value == value_text(kind, want_value)
        case _:
            return False
