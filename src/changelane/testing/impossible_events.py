# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for events that no producer should write, but ``native-json`` accepts.

Examples are columns outside the schema, rows without images, types and values of absurd sizes,
times after the year 9999, and details of unexpected types. A format must reject such an event, or
write it so that it can be read.
"""

import decimal
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from changelane.codec import get_codec
from changelane.errors import ChangelaneError
from changelane.event import (
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Key,
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
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    TimePosition,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.value_strategies import hostile_names, simple_json, types, values
from changelane.types import (
    UNAVAILABLE,
    Array,
    Bits,
    Date,
    Decimal,
    Enum,
    Float,
    Geometry,
    GeometryType,
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
    Unknown,
    Uuid,
    Value,
    Xml,
    Year,
)

_NATIVE: Final = get_codec("native-json")

_ids: Final = st.sampled_from(["id", "a", "b", "A", "before", "after", "op"])
_odd: Final = st.sampled_from(
    ["", "\x00", " ", ".", "null", "\n", "\ufeff", "\U0010ffff", "x" * 300, "a\x00b", "__dbz__x"]
)
_names: Final = st.one_of(_ids, _ids, _ids, _odd, hostile_names)
_texts: Final = st.one_of(_odd, st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
_small: Final = st.sampled_from([-1, 0, 1, 2, 6, 7, 9, 38, 39, 65, 300, 10_001, 2**31, 2**63])
_big: Final = st.sampled_from(
    [-(2**70), -(2**63) - 1, -(2**63), -1, 0, 1, 17, 2**31, 2**63 - 1, 2**63, 2**64, 2**70]
)
_seconds: Final = st.sampled_from(
    [-(10**13), -62_135_596_801, -1, 0, 1, 99_999, 10**9, 253_402_300_799, 253_402_300_800, 10**13]
)
_times: Final = st.one_of(
    st.none(), st.tuples(_seconds, st.integers(0, 999_999_999)).map(lambda t: t[0] * 10**9 + t[1])
)

_TYPES: Final[SearchStrategy[LogicalType]] = st.one_of(
    types(_NATIVE.carries),
    types(_NATIVE.carries),
    st.builds(Decimal, st.one_of(st.none(), _small), _small),
    st.builds(Bits, _small),
    st.builds(Time, _small),
    st.builds(TimeTz, _small),
    st.builds(Timestamp, _small),
    st.builds(InstantType, _small),
    st.builds(Interval, st.sampled_from(["us", "ns", "years"])),
    st.builds(Enum, st.sampled_from([None, (), ("",), ("a", "a"), ("a,b", "'", "\\"), ("1", "2")])),
    st.builds(Set, st.sampled_from([None, (), ("",), ("a", "a"), ("a,b", "'", "\\"), ("1", "2")])),
    st.builds(Text, _texts),
    st.builds(GeometryType, st.sampled_from(["point", "polygon", "geography"])),
    st.builds(Array, st.sampled_from([Array(String()), Date(), Year(), Unknown(), Json()])),
    st.builds(Map, st.sampled_from([Integer(8), Date(), Float()]), st.just(Decimal(5, 2))),
    st.just(Record((("a", String()), ("a", Integer())), "x")),
    st.just(Record((("", Record(())),), "")),
)
_SOURCE_TYPES: Final = st.one_of(
    st.none(),
    st.sampled_from(
        (
            *("bigint unsigned", "BIGINT UNSIGNED ZEROFILL", "tinyint(1)", "int", "int unsigned"),
            *("bit(1)", "bit(99999)", "decimal(1000000000,5)", "decimal(5", "numeric(10,2)[]"),
            *("enum('a'", "enum()", "enum('a','a')", "set('a','b')", "varchar(999999999999)"),
            *("int#5", "x#99999999999", "datetime(9)", "timestamp with time zone", "timestamp(3)"),
            *("char(3) character set nowhere", "varchar(9) character set latin1", "geometry"),
            *("NUMBER(5,-2)", "interval year to month", "raw(5)", "uniqueidentifier", "", "()"),
            *("year", "json", "mediumint", "blob", "date", "time", "double precision", "\x00", ","),
        )
    ),
)
_DATE_TEXTS: Final = st.sampled_from(
    (
        "10000-01-01",
        "-0001-01-01",
        "294276-12-31",
        "0000-00-00",
        "2024-02-30",
        "infinity",
        "abc",
        "",
    )
)
_CLOCKS: Final = ("T00:00:00", " 25:61:61.5", "T12:00:00.123456789", "T00:00:00 BC", "", "T1")
_ZONES: Final = ("Z", "+08:00", "-99:99", "", " Asia/Shanghai", "+00:00:30")
_ZONED: Final = st.builds(
    "{}{}{}".format, _DATE_TEXTS, st.sampled_from(_CLOCKS), st.sampled_from(_ZONES)
)
_CLOCK_TEXTS: Final = st.sampled_from(
    ("838:59:59", "-838:59:59.000001", "24:00:00", "99999:00:00", "1:2:3", "abc", "", "-00:00:00.1")
)
_NUMBERS: Final = st.sampled_from(
    "NaN sNaN Infinity -Infinity -0 0E-30 1E+50 -1E-50 1E+9999 1E+99999 123456789.123456789".split()
)
_WILD_VALUES: Final[dict[type[LogicalType], SearchStrategy[Any]]] = {
    Decimal: st.one_of(_NUMBERS.map(decimal.Decimal), st.just(decimal.Decimal("9" * 400))),
    Float: st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1e308]),
    Date: _DATE_TEXTS,
    Timestamp: _ZONED,
    InstantType: _ZONED,
    Time: _CLOCK_TEXTS,
    TimeTz: st.one_of(_CLOCK_TEXTS, st.sampled_from(["10:00:00+08:00", "10:00:00Z", "1+1"])),
    Year: st.sampled_from([-1, 0, 1900, 2156, 9999, 10_000, 2**70]),
    Interval: st.one_of(_texts, st.sampled_from(["P1Y-2M", "PT", "P", "1 day"])),
    Bits: st.sampled_from(["", "2", "0" * 70, "1" * 70, "abc", "01"]),
    Enum: st.sampled_from(["", "a", "a,b", "1", "nowhere", "'"]),
    Set: st.sampled_from(["", "a", "a,b", "b,a", "a,a", "1", "nowhere", ","]),
    Json: st.sampled_from(["", "{", "[1,2]", '{"a":1e999999999}', "[" * 300, "NaN", '"\\ud800"']),
    Uuid: st.sampled_from(["", "abc", "A" * 36]),
    Xml: _texts,
    String: _texts,
    Text: _texts,
    GeometryType: st.builds(
        Geometry,
        st.one_of(st.none(), st.binary(max_size=4), st.binary(min_size=21, max_size=25)),
        st.one_of(st.none(), _big),
    ),
}


def _is_usual(kind: LogicalType) -> bool:
    """Whether values of a type can be generated: its parameters are not absurd."""
    match kind:
        case Decimal(precision, scale):
            return 0 < (precision or 1) <= 400 and abs(scale or 0) <= 400
        case Bits(length):
            return 0 <= (length or 0) <= 400
        case Time(precision) | TimeTz(precision) | Timestamp(precision) | InstantType(precision):
            return 0 <= (precision or 0) <= 9
        case _:
            return True


def _value(kind: LogicalType) -> SearchStrategy[Value]:
    usual: SearchStrategy[Any] = st.nothing()
    if _is_usual(kind):
        usual = values(kind)
    wild = _WILD_VALUES.get(type(kind), usual)
    return st.one_of(usual, usual, wild, st.none(), st.just(UNAVAILABLE))


@st.composite
def _schemas(draw: st.DrawFn) -> TableSchema:
    columns = [
        Column(
            name,
            kind := draw(_TYPES),
            draw(_SOURCE_TYPES),
            draw(st.sampled_from([None, True, False])),
            draw(st.booleans()) and draw(st.booleans()),
            draw(st.one_of(st.just(msgspec.UNSET), st.just(msgspec.UNSET), _default(kind))),
        )
        for name in draw(st.lists(_names, max_size=4, unique=True))
    ]
    return TableSchema(tuple(columns))


def _default(kind: LogicalType) -> SearchStrategy[Any]:
    return _value(kind).map(lambda value: msgspec.UNSET if value is UNAVAILABLE else value)


@st.composite
def _image(draw: st.DrawFn, schema: TableSchema | None) -> Mapping[str, Value] | None:
    fate = draw(st.integers(0, 7))
    if fate == 0:
        return None
    row: dict[str, Value] = {}
    for column in () if schema is None else schema.columns:
        if draw(st.integers(0, 7)):
            row[column.name] = draw(_value(column.type))
    for _ in range(draw(st.integers(0, 2)) if schema is None or fate == 1 else 0):
        row[draw(_names)] = draw(st.one_of(simple_json(), st.none(), st.just(UNAVAILABLE), _big))
    return row


_tables: Final = st.builds(TableId, *[st.one_of(st.none(), _names)] * 3)
_transactions: Final = st.builds(
    Transaction,
    st.one_of(st.sampled_from(["", "571", "a:b:7", "0", "-5", "9" * 30]), _texts),
    *[st.one_of(st.none(), _big)] * 3,
    st.one_of(st.none(), st.booleans()),
)
_positions: Final = st.one_of(
    st.none(),
    st.builds(
        MySqlPosition,
        st.sampled_from(["mysql-bin.000001", "", "x", "bin.99999999999999999999"]),
        *(_big, _big),
        st.one_of(st.none(), _texts, st.just("b4f8:1-3,x:2")),
    ),
    st.builds(PostgresPosition, _big, st.one_of(st.none(), _big), _big),
    st.builds(
        ScnPosition, _big, st.one_of(st.none(), _big), st.one_of(st.none(), _texts), *[_big] * 2
    ),
    st.builds(
        LsnPosition,
        st.sampled_from(["00000027:00000ac0:0002", "", "x", "ffffffff:ffffffff:ffff"]),
        st.one_of(st.none(), _texts),
        st.one_of(st.none(), _big),
    ),
    st.builds(SequencePosition, _big, _big),
    st.builds(OffsetPosition, _texts, *[_big] * 3),
    st.builds(TimePosition, *[_big] * 3),
)
_products: Final = st.sampled_from(
    "mysql mariadb postgresql oracle sqlserver mongodb db2 polardb opengauss lindorm acme".split()
)
_sources: Final = st.builds(
    Source,
    st.one_of(st.none(), _products, _products, _texts),
    st.one_of(st.none(), st.sampled_from(["debezium", "canal", "dts", "cdl", "arcion"]), _texts),
    st.one_of(st.none(), st.just("shop"), _texts),
    st.one_of(st.none(), st.sampled_from(["3.0.0.Final", "1.4.0.Final"]), _texts),
    st.one_of(st.none(), st.sampled_from(["true", "first", "last", "incremental", ""])),
)

_DETAIL_NAMES: Final = st.sampled_from(
    (
        "source times name fields columns placeholders fillers key header envelope transaction op "
        "before before_image topic schemas value data_collections databaseName schemaName unique "
        "tableChanges part raw image tags LOB_COLUMNS message message_type unique_fields sqlType "
        "sql processTimestamps operation id gtid data checkpointTime batchId _tidb properties "
        "HEARTBEAT_IDENTIFIER DATA_STORE version userid trailingBytes sourceVersion sourceTxid seq "
        "sourcePosition size safeSourcePosition rowid queue objectName host ddlMeta ddl dbVersion "
        "bornTimestamp meta posttime trans scn sequence identity pk_uk_info file pos other"
    ).split()
)
_SOURCE_NAMES: Final = st.sampled_from(
    "thread server_id row query gtid txId lsn xmin sequence ts_us ts_ns file pos schema db".split()
)
_told: Final = st.one_of(
    st.none(),
    simple_json(),
    _big,
    _texts,
    st.dictionaries(st.one_of(_SOURCE_NAMES, _names), st.one_of(simple_json(1), _big), max_size=3),
    st.lists(st.dictionaries(_names, st.one_of(_texts, _big), max_size=2), max_size=2),
)
_details: Final = st.one_of(
    st.just({}),
    st.just({}),
    st.fixed_dictionaries(
        {"source": st.dictionaries(_SOURCE_NAMES, st.one_of(simple_json(1), _big), max_size=3)}
    ),
    st.dictionaries(_DETAIL_NAMES, _told, max_size=3),
)


@st.composite
def _changes(draw: st.DrawFn) -> DataChange:
    schema = draw(st.one_of(st.none(), _schemas()))
    before, after = draw(_image(schema)), draw(_image(schema))
    column_names = [*(before or ()), *(after or ()), *(() if schema is None else schema.names)]
    columns = st.lists(st.sampled_from(column_names) if column_names else _names, max_size=3)
    key = draw(st.one_of(st.none(), columns, columns, st.lists(_names, max_size=2)))
    return DataChange(
        draw(st.sampled_from(list(Op))),
        draw(_tables),
        None if key is None else Key(tuple(key)),
        before,
        after,
        schema,
        draw(_positions),
        draw(st.one_of(st.none(), _transactions)),
        draw(_sources),
        draw(_times),
        draw(_times),
        draw(st.sampled_from(list(Completeness))),
        draw(st.sampled_from(list(Completeness))),
        draw(_details),
    )


@st.composite
def _half(draw: st.DrawFn) -> HalfUpdate:
    change = draw(_changes())
    other_key = draw(_image(change.schema))
    if other_key is not None:
        other_key = {name: value for name, value in other_key.items() if value is not UNAVAILABLE}
    return HalfUpdate(change, other_key, draw(st.one_of(st.none(), _texts, st.just("17"))))


_STATEMENTS: Final = st.one_of(
    st.none(),
    _texts,
    st.sampled_from(
        (
            "ALTER TABLE t ADD COLUMN c INT",
            "TRUNCATE TABLE t",
            "RENAME TABLE a TO b",
            "CREATE TABLE t (id int primary key)",
            "DROP TABLE t; TRUNCATE TABLE u",
            "/*",
        )
    ),
)
_ACTIONS: Final = st.one_of(
    _texts,
    st.sampled_from(
        "create alter drop rename create_index drop_index create_database truncate other".split()
    ),
)


def _others() -> SearchStrategy[ChangeEvent]:
    origin: dict[str, Any] = {
        "position": _positions,
        "source": _sources,
        "source_time_ns": _times,
        "process_time_ns": _times,
        "details": _details,
    }
    within = origin | {"transaction": st.one_of(st.none(), _transactions)}
    schema = st.one_of(st.none(), _schemas())
    keys = st.one_of(st.none(), st.lists(_names, max_size=2).map(lambda names: Key(tuple(names))))
    statement = {"ddl": _STATEMENTS, "schema": schema, "key": keys}
    tombstones = schema.flatmap(
        lambda of: st.builds(
            Tombstone, _tables, _image(of), st.just(of), _image(of), details=_details
        )
    )
    return st.one_of(
        st.builds(SchemaChange, _tables, _ACTIONS, **statement, **origin),
        st.builds(Truncate, _tables, _STATEMENTS, **within),
        st.builds(
            TransactionMarker,
            st.one_of(st.sampled_from(["begin", "commit", "rollback"]), _texts),
            _transactions,
            **origin,
        ),
        st.builds(
            Watermark, st.one_of(st.sampled_from(["heartbeat", "resolved"]), _texts), **origin
        ),
        st.builds(LogicalMessage, _texts, st.binary(max_size=5), **within),
        st.builds(Control, _texts, st.one_of(st.none(), _texts), _tables, **origin),
        tombstones,
    )


def _accepted(event: ChangeEvent) -> ChangeEvent | None:
    """Return an event as ``native-json`` reads it; ``None`` if it rejects the event."""
    try:
        (line,) = _NATIVE.encode(event).messages
        return _NATIVE.decode(line)[0]
    except ChangelaneError:
        return None


def wild_events() -> SearchStrategy[ChangeEvent]:
    """Events of all kinds that ``native-json`` accepts, also absurd ones; most are row changes."""
    kinds = (_changes(), _changes(), _changes(), _half(), _others())
    strategy: SearchStrategy[Any] = st.one_of(*kinds).map(_accepted)
    return strategy.filter(lambda event: event is not None)
