# SPDX-License-Identifier: Apache-2.0
"""Values of DTS records: every branch of the union, every kind of source, both ways."""

import datetime as dt
import decimal

import msgspec
import pytest
from dts_records import (
    branch,
    character,
    date_time,
    decode,
    integer,
    read_by_fastavro,
    row,
    text,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelane import DecodeError, EncodeError, get_codec
from changelane.event import DataChange, Op, Source
from changelane.formats.dts import charsets, datetimes
from changelane.formats.dts.avro import UNION
from changelane.formats.dts.branches import BRANCHES
from changelane.formats.dts.type_numbers import FAMILIES, number_of, source_type
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import events
from changelane.types import Geometry, String, Text, parse_type

QUIET = settings(
    max_examples=15 * EFFORT,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
BIG_POINT = bytes.fromhex("00000000013ff00000000000004000000000000000")
UTC = dt.UTC


def decimal_of(value):
    return branch("Decimal", value=value, precision=0, scale=0)


def float_of(value):
    return branch("Float", value=value, precision=8, scale=15)


def stamp(seconds, micros):
    return branch("Timestamp", timestamp=seconds, millis=micros)


def zoned(zone, *parts):
    return branch("TimestampWithTimeZone", value=date_time(*parts)[1], timezone=zone)


def blob(value, label="BLOB"):
    return branch("BinaryObject", type=label, value=value)


MYSQL = [
    (1, integer(-128, 1), -128, "int16", "tinyint"),
    (1, integer(255, 1), 255, "int16", "tinyint"),
    (2, integer(65535, 2), 65535, "int32", "smallint"),
    (9, integer(16777215, 3), 16777215, "int32", "mediumint"),
    (3, integer(4294967295), 4294967295, "int64", "int"),
    (8, integer(-(2**63), 8), -(2**63), "int64", "bigint"),
    (8, integer(2**64 - 1, 8), 2**64 - 1, "uint64", "bigint"),
    (16, integer(5, 1), "101", "bits", "bit"),
    (16, blob(b"\x05", "BIT"), "00000101", "bits", "bit"),
    (246, decimal_of("348.00"), decimal.Decimal("348.00"), "decimal", "decimal"),
    (246, decimal_of("-1E+3"), decimal.Decimal(-1000), "decimal", "decimal"),
    (246, decimal_of("Infinity"), decimal.Decimal("Infinity"), "decimal", "decimal"),
    (0, decimal_of("0.0100"), decimal.Decimal("0.0100"), "decimal", "decimal#0"),
    (4, float_of(1.5), 1.5, "float32", "float"),
    (5, float_of(1e300), 1e300, "float64", "double"),
    (13, date_time(2023, *[None] * 6), 2023, "year", "year"),
    (10, date_time(2020, 2, 29, *[None] * 4), dt.date(2020, 2, 29), "date", "date"),
    (14, date_time(2020, 2, 0, *[None] * 4), "2020-02-00", "date", "date#14"),
    (11, date_time(None, None, None, 838, 59, 59, 0), "838:59:59", "time", "time"),
    (19, date_time(None, None, None, 0, 0, 0, -500_000), "-00:00:00.5", "time", "time#19"),
    (
        12,
        date_time(2020, 2, 29, 1, 2, 3, 0),
        dt.datetime(2020, 2, 29, 1, 2, 3),
        "timestamp",
        "datetime",
    ),
    (12, date_time(0, 0, 0, 0, 0, 0, 0), "0000-00-00 00:00:00", "timestamp", "datetime"),
    (
        18,
        date_time(2020, 2, 29, 1, 2, 3, 4),
        dt.datetime(2020, 2, 29, 1, 2, 3, 4),
        "timestamp",
        "datetime#18",
    ),
    (
        18,
        date_time(2020, 1, 1, 0, 0, 0, 123_456_000),
        dt.datetime(2020, 1, 1, 0, 0, 0, 123_456),
        "timestamp",
        "datetime#18",
    ),
    (7, stamp(0, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC), "instant", "timestamp"),
    (7, date_time(0, 0, 0, 0, 0, 0, 0), "0000-00-00 00:00:00", "instant", "timestamp"),
    (
        17,
        stamp(-1, 999_999),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "instant",
        "timestamp#17",
    ),
    (253, character(b"\xe6\x96\x87"), "文", "string", "varchar"),
    (253, character(b"\xe9\x80", "latin1"), "é€", "string", "varchar character set latin1"),
    (254, character(b"\x00\xff", "binary"), b"\x00\xff", "bytes", "binary"),
    (253, character(b"\x00\xff", ""), b"\x00\xff", "bytes", "varbinary"),
    (15, character(b"a", "klingon"), b"a", "bytes", "varbinary#15"),
    (249, character(b"a"), "a", "string", "tinytext"),
    (250, blob(b"a"), b"a", "bytes", "mediumblob"),
    (251, character(b"a"), "a", "string", "longtext"),
    (252, blob(b"\xff"), b"\xff", "bytes", "blob"),
    (247, text("ENUM", "b"), "b", "enum", "enum"),
    (248, text("SET", "a,c"), "a,c", "set", "set"),
    (245, text("JSON", '{"k": 1}'), '{"k": 1}', "json", "json"),
    (
        255,
        branch("BinaryGeometry", type="WKB", value=POINT),
        Geometry(POINT),
        "geometry(geometry)",
        "geometry",
    ),
    (6, None, None, "string", "null"),
    (-7, text("BOOL", "t"), True, "boolean", "bit#-7"),
    (
        2014,
        zoned("UTC", 2020, 1, 1, 0, 0, 0, 0),
        dt.datetime(2020, 1, 1, tzinfo=UTC),
        "instant",
        "timestamp with time zone#2014",
    ),
    (20001, character(b"a"), "a", "string", "#20001"),
]
ORACLE = [
    (1, character(b"a"), "a", "string", "varchar2"),
    (2, decimal_of("1E+40"), decimal.Decimal("1E+40"), "decimal", "number"),
    (8, character(b"a"), "a", "string", "long"),
    (12, date_time(-4712, 1, 1, 0, 0, 0, None), "-4712-01-01T00:00:00", "timestamp", "date"),
    (23, blob(b"a", "RAW"), b"a", "bytes", "raw"),
    (58, character(b"<a/>"), "<a/>", "xml", "xmltype"),
    (69, text("ROWID", "AAAT"), "AAAT", "text('rowid')", "rowid"),
    (100, float_of(1.5), 1.5, "float32", "binary_float"),
    (101, float_of(float("-inf")), float("-inf"), "float64", "binary_double"),
    (112, character(b"a"), "a", "string", "clob"),
    (114, text("BFILE", "d/f"), "d/f", "text('bfile')", "bfile"),
    (
        180,
        date_time(2020, 1, 1, 0, 0, 0, 123_456_789),
        "2020-01-01T00:00:00.123456789",
        "timestamp(9)",
        "timestamp",
    ),
    (
        180,
        date_time(2020, 1, 1, 0, 0, 0, 1000),
        dt.datetime(2020, 1, 1, 0, 0, 0, 1),
        "timestamp",
        "timestamp",
    ),
    (
        181,
        zoned("+08:00", 2020, 1, 1, 8, 0, 0, 0),
        dt.datetime(2020, 1, 1, tzinfo=UTC),
        "instant",
        "timestamp with time zone",
    ),
    (182, date_time(-1, -2, *[None] * 5), "P-1Y-2M", "interval", "interval year to month"),
    (
        183,
        date_time(None, None, 1, 2, 3, 4, 5000),
        dt.timedelta(1, 7384, 5),
        "interval(us)",
        "interval day to second",
    ),
    (
        183,
        date_time(None, None, 0, 0, 0, -1, -1),
        -1_000_000_001,
        "interval(ns)",
        "interval day to second",
    ),
    (208, text("UROWID", "x"), "x", "text('urowid')", "urowid"),
]
POSTGRESQL = [
    (16, text("BOOL", "t"), True, "boolean", "bool"),
    (16, text("BOOL", "false"), False, "boolean", "bool"),
    (17, blob(b"a", "BYTEA"), b"a", "bytes", "bytea"),
    (21, integer(-1, 2), -1, "int16", "int2"),
    (23, integer(7, 20), 7, "int32", "int4"),
    (20, integer(2**63 - 1, 20), 2**63 - 1, "int64", "int8"),
    (114, text("JSON", "{}"), "{}", "json", "json"),
    (142, text("XML", "<a/>"), "<a/>", "xml", "xml"),
    (600, branch("TextGeometry", type="WKT", value="(1,2)"), "(1,2)", "text('point')", "point"),
    (869, text("INET", "::1"), "::1", "text('inet')", "inet"),
    (1043, character(b"a", "utf8"), "a", "string", "varchar"),
    (1083, date_time(None, None, None, 1, 2, 3, 500_000), "01:02:03.5", "time", "time"),
    (
        1114,
        date_time(2020, 1, 1, 0, 0, 0, 1),
        dt.datetime(2020, 1, 1, 0, 0, 0, 1),
        "timestamp",
        "timestamp",
    ),
    (
        1184,
        zoned("GMT+8:00", 2020, 1, 1, 8, 0, 0, 0),
        dt.datetime(2020, 1, 1, tzinfo=UTC),
        "instant",
        "timestamptz",
    ),
    (1186, text("INTERVAL", "1 mon"), "1 mon", "text('interval')", "interval"),
    (1186, text("INTERVAL", "P1M"), "P1M", "interval", "interval"),
    (1266, zoned("+08", None, None, None, 1, 2, 3, 0), "01:02:03+08:00", "timetz", "timetz"),
    (1560, text("BIT", "0101"), "0101", "bits", "bit"),
    (1700, decimal_of("NaN"), "NaN", "decimal", "numeric"),
    (2950, text("UUID", "0-0"), "0-0", "uuid", "uuid"),
    (3082, blob(b"[1]", "jsonb"), "[1]", "json", "jsonb#3082"),
    (3802, blob(b"[1]", "JSONB"), "[1]", "json", "jsonb"),
]
PUBLISHED = [
    *(("MySQL", *case) for case in MYSQL),
    *(("Oracle", *case) for case in ORACLE),
    *(("PostgreSQL", *case) for case in POSTGRESQL),
    ("SQLServer", 56, integer(7), 7, "int64", "#56"),
    ("DB2", 480, decimal_of("1.5"), decimal.Decimal("1.5"), "decimal", "#480"),
    (
        "OTHER",
        93,
        date_time(2020, 1, 1, 0, 0, 0, 1),
        "2020-01-01T00:00:00.000000001",
        "timestamp(9)",
        "timestamp",
    ),
]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: f"{case[0]}-{case[1]}-{case[4]}")
def test_a_value_of_each_kind_is_read_and_written_again(case):
    source, number, value, want, kind, name = case
    data = row(number, value, source=source)
    event = decode(data)
    (column,) = event.schema.columns
    got = event.after["c"]
    assert (
        str(got) == want
        if want == "NaN"
        else (got == want and type(got) is not bool) or got is want
    )
    assert (str(column.type), column.source_type) == (kind, name)
    (message,) = get_codec("dts-avro").encode(event, on_loss="ignore").messages
    assert read_by_fastavro(message.value)["fields"] == [{"name": "c", "dataTypeNumber": number}]
    assert differences(decode(message.value), event, get_codec("dts-avro").carries) == ()


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (3, integer("1_0")),
        (3, integer("")),
        (3, integer("1.5")),
        (3, integer("9" * 5000)),
        (16, integer(-1)),
        (246, decimal_of("ten")),
        (246, decimal_of("1e99999999999")),
        (253, character(b"\xff")),
        (253, character(b"\xff", "gbk")),
        (12, date_time(2020, 13, 1, 0, 0, 0, 0)),
        (12, date_time(2020, 1, 1, 24, 0, 0, 0)),
        (12, date_time(2020, None, 1, 0, 0, 0, 0)),
        (12, date_time(*[None] * 7)),
        (11, date_time(None, None, None, 1, -2, 3, 0)),
        (7, stamp(0, -1)),
        (7, stamp(0, 10**9)),
        (2014, zoned("Middle/Earth", 2020, 1, 1, 0, 0, 0, 0)),
        (2014, zoned("+25:00", 2020, 1, 1, 0, 0, 0, 0)),
        (-7, text("BOOL", "maybe")),
        (255, text("BIT", "012")),
    ],
)
def test_a_value_that_is_none_of_its_branch_is_refused_with_its_place(number, value):
    with pytest.raises(DecodeError) as error:
        decode(row(number, value))
    assert (error.value.code, error.value.path) == ("wrong_type", "$.afterImages[0]")


def test_a_special_decimal_without_a_meaning_is_kept_as_text():
    event = decode(row(246, decimal_of("~")))
    assert event.after == {"c": "~"}
    assert event.schema.columns[0].type == String()


def test_the_spatial_reference_that_mysql_puts_first_is_taken_off():
    for prefix, srid in ((b"\xe6\x10\0\0", 4326), (b"\0\0\0\0", None), (b"\1\0\0\0", 1)):
        value = branch("BinaryGeometry", type="WKB", value=prefix + POINT)
        assert decode(row(255, value)).after["c"] == Geometry(POINT, srid)
    for plain in (BIG_POINT, POINT):
        value = branch("BinaryGeometry", type="WKB", value=plain)
        assert decode(row(255, value)).after["c"] == Geometry(plain)


def test_the_physical_reader_of_postgresql_writes_nanoseconds():
    value = date_time(2020, 1, 1, 0, 0, 0, 1000)
    for position, micros in (("0/1", 1000), ("0/1<->7", 1)):
        event = decode(row(1114, value, source="PostgreSQL", sourcePosition=position))
        assert event.after["c"].microsecond == micros


@given(st.lists(st.integers(-2, 70), min_size=6, max_size=6), st.sampled_from([0, 1]))
@QUIET
def test_the_short_way_to_timestamps_agrees_with_the_long_one(parts, fraction):
    year, *rest = parts
    try:
        want = datetimes.value_of((1999 + year, *rest, fraction * 1000))[1]
    except ValueError:
        want = None
    try:
        got = decode(row(12, date_time(1999 + year, *rest, fraction))).after["c"]
    except DecodeError:
        got = None
    assert got == want


def test_a_wall_clock_that_a_zone_shows_twice_stays_text():
    twice = zoned("Europe/Berlin", 2020, 10, 25, 2, 30, 0, 0)
    once = zoned("Asia/Shanghai", 2020, 1, 1, 8, 0, 0, 0)
    assert (
        decode(row(181, twice, source="Oracle")).after["c"] == "2020-10-25T02:30:00 Europe/Berlin"
    )
    assert decode(row(181, once, source="Oracle")).after["c"] == dt.datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "year", "text"),
    [
        ("Asia/Shanghai", 2020, "2020-10-25T02:30:00.123456789+08:00"),
        ("Europe/Berlin", 2021, "2021-10-25T02:30:00.123456789+02:00"),
        ("Europe/Berlin", 2020, "2020-10-25T02:30:00.123456789 Europe/Berlin"),  # twice
        ("Asia/Shanghai", 1880, "1880-10-25T02:30:00.123456789 Asia/Shanghai"),  # +08:05:43
        ("Asia/Shanghai", -5, "-0005-10-25T02:30:00.123456789 Asia/Shanghai"),
    ],
)
def test_nanoseconds_in_a_named_zone_have_its_offset(zone, year, text):
    value = zoned(zone, year, 10, 25, 2, 30, 0, 123456789)
    assert decode(row(181, value, source="Oracle")).after["c"] == text


# -- character sets ----------------------------------------------------------------------------

NAMES = """
    utf8 utf8mb3 utf8mb4 latin1 ascii gbk gb18030 gb2312 big5 sjis cp932 ujis eucjpms euckr tis620
    greek hebrew latin2 latin5 latin7 koi8r koi8u cp1250 cp1251 cp1256 cp1257 cp850 cp852 keybcs2
    cp866 macroman macce ucs2 utf16 utf16le utf32
""".split()
SAMPLES = {"gbk": "中", "big5": "中", "sjis": "あ", "greek": "λ", "koi8u": "ї", "euckr": "한"}


@pytest.mark.parametrize("name", NAMES)
def test_a_character_set_is_read_and_written(name):
    value = "a" + SAMPLES.get(name, "z")
    data = charsets.encode(value, name)
    assert data is not None
    event = decode(row(253, character(data, name)))
    assert event.after == {"c": value}
    (message,) = get_codec("dts-avro").encode(event).messages
    (_, written) = read_by_fastavro(message.value)["afterImages"][0]
    assert (written["charset"], written["value"]) == (name, data)


def test_the_five_bytes_that_cp1252_lacks_are_latin1_of_mysql():
    data = bytes(range(256))
    value = decode(row(253, character(data, "latin1"))).after["c"]
    assert [ord(value[byte]) for byte in b"\x81\x8d\x8f\x90\x9d"] == [*b"\x81\x8d\x8f\x90\x9d"]
    assert charsets.encode(value, "latin1") == data


def test_text_that_a_character_set_lacks_is_written_in_another():
    event = decode(row(253, character(b"a", "latin1")))
    (message,) = (
        get_codec("dts-avro").encode(msgspec.structs.replace(event, after={"c": "文"})).messages
    )
    (_, written) = read_by_fastavro(message.value)["afterImages"][0]
    assert (written["charset"], written["value"]) == ("utf8mb4", "文".encode())


# -- numbers of columns ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family", {f.name: f for f in FAMILIES.values()}.values(), ids=lambda f: f.name
)
def test_every_number_is_found_again_by_its_name(family):
    for number, of in family.numbers.items():
        column = Column("c", of.type, source_type(family, number))
        assert number_of(family, column) == number


def test_each_branch_of_the_union_has_an_entry():
    assert tuple(BRANCHES) == UNION


@pytest.mark.parametrize(
    ("source", "kind", "name", "number"),
    [
        ("MySQL", "uint64", "bigint(20) unsigned", 8),
        ("MySQL", "string", "varchar(255)", 253),
        ("MySQL", "string", "longtext", 251),
        ("MySQL", "bytes", "varbinary(9)", 253),
        ("MySQL", "decimal(10,2)", "decimal(10,2)", 246),
        ("MySQL", "timestamp(6)", "datetime(6)", 12),
        ("MySQL", "geometry(point)", "point", 255),
        ("MySQL", "uuid", None, 1111),
        ("MySQL", "bytes", None, 252),
        ("PostgreSQL", "int32", "integer", 23),
        ("PostgreSQL", "uint32", None, 20),
        ("PostgreSQL", "string", "character varying(9)", 1043),
        ("PostgreSQL", "instant(6)", "timestamp with time zone", 1184),
        ("PostgreSQL", "text('inet')", None, 869),
        ("PostgreSQL", "json", None, 3802),
        ("PostgreSQL", "enum('a')", None, 705),
        ("Oracle", "decimal(10,0)", "NUMBER(10)", 2),
        ("Oracle", "instant(6)", None, 181),
        ("OTHER", "float32", None, 7),
        ("OTHER", "year", None, 4099),
    ],
)
def test_columns_of_other_producers_get_the_number_of_their_type(source, kind, name, number):
    column = Column("c", parse_type(kind), name)
    assert number_of(FAMILIES[source], column) == number


# -- writing -----------------------------------------------------------------------------------


def change(kind, value, product="mysql", name=None):
    schema = TableSchema((Column("c", parse_type(kind), name),))
    table, source = TableId("d", None, "t"), Source(product)
    return DataChange(Op.CREATE, table, after={"c": value}, schema=schema, source=source)


def written(kind, value, product="mysql", name=None):
    encoded = get_codec("dts-avro").encode(change(kind, value, product, name), on_loss="ignore")
    (image,) = read_by_fastavro(encoded.messages[0].value)["afterImages"]
    return image, [field for field, _ in encoded.losses]


@pytest.mark.parametrize(
    ("value", "precision", "scale", "plain"),
    [
        ("348.00", 5, 2, "348.00"),
        ("1.00", 3, 2, "1.00"),
        ("0.0100", 3, 4, "0.0100"),
        ("-0.0100", 3, 4, "-0.0100"),
        ("0.00", 1, 2, "0.00"),
        ("1E+3", 4, 0, "1000"),
        ("NaN", 0, 0, "NaN"),
        ("-Infinity", 0, 0, "-Infinity"),
    ],
)
def test_the_precision_of_a_decimal_is_that_of_its_value(value, precision, scale, plain):
    image, losses = written("decimal", decimal.Decimal(value))
    assert image == branch("Decimal", value=plain, precision=precision, scale=scale)
    assert losses == []


@pytest.mark.parametrize(
    ("name", "width"),
    [("tinyint", 1), ("smallint", 2), ("mediumint", 3), ("int", 4), ("bigint", 8)],
)
def test_the_precision_of_an_integer_is_its_width(name, width):
    assert written("int8" if width == 1 else "int16", 7, name=name)[0] == integer(7, width)


def test_a_float_has_the_precision_of_the_deliver_sdk():
    assert written("float64", 1.5)[0] == float_of(1.5)


def test_fractions_are_microseconds_for_mysql_and_postgresql_and_else_nanoseconds():
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 6)
    for product, fraction in (("mysql", 6), ("postgresql", 6), ("oracle", 6000), (None, 6000)):
        image, _ = written("timestamp(6)", moment, product)
        assert image == date_time(2020, 1, 2, 3, 4, 5, fraction)


def test_nanoseconds_are_cut_where_there_are_microseconds_and_that_is_told():
    value = "2020-01-02T03:04:05.123456789"
    assert written("timestamp(9)", value) == (
        date_time(2020, 1, 2, 3, 4, 5, 123_456),
        ["value:timestamp"] * 2,
    )
    assert written("timestamp(9)", value, "oracle") == (
        date_time(2020, 1, 2, 3, 4, 5, 123_456_789),
        [],
    )


def test_instants_are_timestamps_of_mysql_and_have_a_zone_elsewhere():
    moment = dt.datetime(2020, 1, 1, 8, tzinfo=dt.timezone(dt.timedelta(hours=8)))
    assert written("instant(6)", moment)[0] == stamp(1_577_836_800, 0)
    assert written("instant(6)", moment, "postgresql")[0] == zoned("+08:00", 2020, 1, 1, 8, 0, 0, 0)


@pytest.mark.parametrize("kind", ["date", "timestamp(6)", "instant(6)"])
def test_infinity_becomes_null_and_that_is_told(kind):
    image, losses = written(kind, "infinity")
    assert image is None
    assert losses == [f"value:{kind.partition('(')[0]}"]


def test_integers_of_oracle_are_decimals_and_that_is_told():
    image, losses = written("int64", 7, "oracle")
    assert image[1] == {"value": "7", "precision": 1, "scale": 0}
    assert losses == ["type:integer"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", "7"),
        ("int8", True),
        ("decimal", 7),
        ("string", b"a"),
        ("bytes", "a"),
        ("boolean", 1),
        ("year", "x"),
        ("date", 7),
    ],
)
def test_a_value_that_is_not_of_its_type_is_not_written(kind, value):
    with pytest.raises(EncodeError, match="column 'c'"):
        get_codec("dts-avro").encode(change(kind, value))


CARRIED = msgspec.structs.replace(get_codec("dts-avro").carries, source_time="s")


@pytest.mark.parametrize("product", ["mysql", "postgresql", "oracle", "redis", None])
def test_events_of_every_kind_of_source_come_back(product):
    codec = get_codec("dts-avro")

    @QUIET
    @given(events(CARRIED).filter(lambda event: isinstance(event, DataChange)))
    def check(event):
        snapshot = "true" if event.op is Op.READ else None
        source = Source(product, "dts", snapshot=snapshot)
        event = msgspec.structs.replace(event, source=source, position=None)
        encoded = codec.encode(event, on_loss="ignore")
        told = {field for field, _ in encoded.losses}
        assert told <= {
            "value:bits",
            "value:geometry",
            "type:interval",
            "type:integer",
            "transaction.id",
        }
        data = encoded.messages[0].value
        read_by_fastavro(data)
        if not told:
            assert differences(decode(data), event, codec.carries) == ()

    check()


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**9 - 1))
@QUIET
def test_points_in_time_of_any_year_come_back(seconds, ns):
    _, value = datetimes.instant_of(seconds, ns)
    assert datetimes.epoch_parts(value) == (seconds, ns)


@given(st.timedeltas())
@QUIET
def test_spans_come_back(span):
    assert datetimes.value_of(datetimes.interval_parts(span)) == (datetimes.SPAN, span)


def test_a_label_that_is_not_known_names_the_type():
    event = decode(row(20001, text("HSTORE", "a=>1")))
    assert event.schema.columns[0].type == Text("hstore")
