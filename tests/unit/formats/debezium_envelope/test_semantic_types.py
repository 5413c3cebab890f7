# SPDX-License-Identifier: Apache-2.0
"""The type table of the Debezium family: every form reads, and goes back to what it came from."""

import datetime as dt
import decimal
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.errors import DecodeError
from changelane.formats.debezium_envelope.rows import connect_schema, epoch_times, json_values
from changelane.formats.debezium_envelope.rows.columns import (
    column_of,
    field_of,
    losses_of,
    wire_of_field,
    wire_with,
)
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.modes import Modes, TimePrecisionMode
from changelane.formats.debezium_envelope.rows.semantic_types import SEMANTIC_TYPES, Wire
from changelane.formats.debezium_envelope.rows.type_mapping import schema_of, wire_of
from changelane.schema import Column
from changelane.types import (
    Array,
    Bits,
    Date,
    Decimal,
    Enum,
    Integer,
    Map,
    Record,
    String,
    Text,
    Time,
    Timestamp,
)
from changelane.types.far_dates import date_text

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [
    0,
    -1,
    9223372036825200000,
    -9223372036832400000,
    9223372036825200,
    -9223372036832400,
    2**63 - 1,
    -(2**63),
    253402300799999999,
    253402300800000000,
    -62135596800000000,
    -62135596800000001,
]


# -- numbers <-> text ----------------------------------------------------------------------------


@given(INT32)
def test_every_day_number_comes_back(days):
    assert epoch_times.days_of(epoch_times.date_of(days)) == days


@given(st.integers(-719162, 2932896), st.integers(-3, 3))
def test_days_outside_pythons_calendar_follow_the_same_calendar(days, cycles):
    """The Gregorian calendar repeats every 400 years, which are 146097 days."""
    inside = dt.date.fromordinal(days + 719163)
    text = date_text(days + cycles * 146097)
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.lstrip("+"))
    year, month, day = digits.split("-")
    assert sign * int(year) - 400 * cycles == inside.year
    assert (int(month), int(day)) == (inside.month, inside.day)


@pytest.mark.parametrize(
    ("days", "text"),
    [(-735160, "-0043-03-15"), (-719529, "-0001-12-31"), (-719528, "0000-01-01"),
     (2932897, "+10000-01-01"), (2145042905, "+5874897-12-31")],
)  # fmt: skip
def test_dates_that_python_cannot_hold(days, text):
    assert epoch_times.date_of(days) == text
    assert epoch_times.days_of(text) == days


@pytest.mark.parametrize(
    ("digits", "read"),
    [
        (3, epoch_times.millis_timestamp),
        (6, epoch_times.micros_timestamp),
        (9, epoch_times.nanos_timestamp),
    ],
)
def test_every_timestamp_number_comes_back(digits, read):
    @given(st.one_of(INT64, st.sampled_from(EDGES)))
    def check(ticks):
        assert epoch_times.timestamp_ticks(read(ticks), digits) == ticks

    check()


@pytest.mark.parametrize("digits", [3, 6, 9])
def test_every_time_number_comes_back(digits):
    @given(INT64)
    def check(ticks):
        text = epoch_times.time_text(ticks, digits)
        assert epoch_times.time_ticks(text, digits) == ticks
        assert len(text.rpartition(".")[2]) == digits

    check()


@pytest.mark.parametrize(
    ("ticks", "text"),
    [(0, "00:00:00.000000"), (86_400_000_000, "24:00:00.000000"), (-1, "-00:00:00.000001"),
     (3020399999999, "838:59:59.999999"), (-3020398999999, "-838:59:58.999999")],
)  # fmt: skip
def test_times_beyond_a_day_are_spans(ticks, text):
    assert epoch_times.time_text(ticks, 6) == text


@pytest.mark.parametrize(
    ("text", "digits"),
    [("0000-00-00 00:00:00", 6), ("2024-02-30T00:00:00", 6), ("2024-01-01T00:00:00.123456789", 6),
     ("soon", 3), ("2024-01-01T25:00", 6)],
)  # fmt: skip
def test_what_has_no_number_is_refused(text, digits):
    with pytest.raises(epoch_times.Inexact):
        epoch_times.timestamp_ticks(text, digits)


@given(st.binary(min_size=1, max_size=40), st.integers(-5, 30))
def test_base64_decimals_keep_value_and_scale(data, scale):
    number = int.from_bytes(data, "big", signed=True)
    text = json_values._whole_out(number)
    value = json_values.decimal_in(scale)(text)
    assert value == decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=999))
    assert -value.as_tuple().exponent == scale
    assert json_values.decimal_out(scale)(value) == text


@pytest.mark.parametrize(
    ("text", "scale", "value"),
    [("MDk=", 2, "123.45"), ("ALxhTg==", 2, "123456.78"), ("AN3h", 2, "568.01"),
     ("ew==", 0, "123"), ("/w==", 0, "-1"), ("AA==", 30, "0")],
)  # fmt: skip
def test_decimals_of_the_documentation(text, scale, value):
    assert json_values.decimal_in(scale)(text) == decimal.Decimal(value)
    assert json_values.decimal_out(scale)(decimal.Decimal(value)) == text


@given(st.integers(-(10**40), 10**40), st.integers(-30, 60))
def test_decimals_that_bring_their_scale_come_back(number, scale):
    told = {"scale": scale, "value": json_values._whole_out(number)}
    assert json_values.variable_out(json_values.variable_in(told)) == told


@given(st.binary(max_size=9), st.integers(1, 80))
def test_bits_come_back_with_their_bytes(data, length):
    text = json_values.bytes_out(data)
    assert json_values.bits_out(json_values.bits_in(length)(text)) == text


def test_bits_are_little_endian():
    assert json_values.bits_in(64)("xwcAAAAAAAA=") == f"{1991:064b}"
    assert json_values.bits_in(5)("EA==") == "10000"
    assert json_values.bits_out("101") == "BQ=="


@pytest.mark.parametrize("text", ["2017-09-15Z", "2017-09-15", "+10000-01-01Z", "infinity", "x"])
def test_iso_dates_come_back(text):
    wire = wire_of(Schema("string", name="io.debezium.time.IsoDate"))
    assert wire.encode(wire.decode(text)) == text


@pytest.mark.parametrize(
    "text",
    ["2017-09-15T04:05:11Z", "2017-09-15T04:05:11.789Z", "2017-09-15T04:05:11.7Z",
     "2017-09-15T04:05:11.789123Z", "2017-09-15T04:05:11.123456789Z", "infinity"],
)  # fmt: skip
def test_iso_timestamps_come_back(text):
    wire = wire_of(Schema("string", name="io.debezium.time.IsoTimestamp"))
    assert wire.encode(wire.decode(text)) == text


# -- schemas -------------------------------------------------------------------------------------


def test_unknown_semantic_names_degrade_to_their_literal_type():
    assert wire_of(Schema("string", name="com.xxx.Inet")).type == Text("com.xxx.Inet")
    assert wire_of(Schema("int32", name="com.xxx.Day")).type == Integer(32)
    member = Schema("int16", field="dimensions")
    vector = connect_schema.struct((member,), name="io.debezium.data.SparseDoubleVector")
    found = wire_of(vector).type
    assert found == Record((("dimensions", Integer(16)),), "io.debezium.data.SparseDoubleVector")


def test_a_semantic_name_on_another_literal_type_is_not_believed():
    assert wire_of(Schema("double", name="io.debezium.time.MicroDuration")).type != Date()


def test_each_entry_of_the_table_has_a_schema_of_its_own():
    keys = [(entry.literal, entry.name) for entry in SEMANTIC_TYPES]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "entry", [e for e in SEMANTIC_TYPES if isinstance(e.wire, Wire)], ids=lambda e: e.name
)
def test_each_entry_of_the_table_reads_the_schema_that_it_writes(entry):
    assert wire_of(entry.schema(entry.wire.type)) is entry.wire


@pytest.mark.parametrize("mode", TimePrecisionMode)
def test_each_mode_has_one_schema_for_dates_and_for_each_number_of_digits(mode):
    kinds = [Date(), *(kind(digits) for kind in (Time, Timestamp) for digits in (None, *range(10)))]
    for kind in kinds:
        assert type(wire_of(schema_of(kind, Modes(mode))).type) is type(kind)


def test_enum_members_may_have_commas():
    schema = Schema("string", name="io.debezium.data.Enum", parameters={"allowed": "a,b,c\\,d"})
    assert wire_of(schema).type == Enum(("a", "b", "c,d"))


@pytest.mark.parametrize("scale", ["x", "99999999999", ""])
def test_absurd_scales_are_a_wrong_schema(scale):
    name = "org.apache.kafka.connect.data.Decimal"
    with pytest.raises(DecodeError) as caught:
        wire_of(Schema("bytes", name=name, parameters={"scale": scale}))
    assert caught.value.code == "wrong_schema"


def test_bit_varying_without_a_length_is_read_and_written_as_debezium_does():
    # "2^31 - 1 in case no length is given for the column", says Debezium's page of PostgreSQL
    schema = Schema(
        "bytes", name="io.debezium.data.Bits", version=1, parameters={"length": "2147483647"}
    )
    wire = wire_of(schema)
    assert (wire.type, wire.decode("BQA=")) == (Bits(), "0000000000000101")
    field = field_of(Column("b", Bits(), nullable=False), Modes(TimePrecisionMode.ADAPTIVE))
    assert field.parameter == schema.parameter


def test_maps_with_and_without_text_keys():
    wire = wire_of(Schema("map", keys=Schema("string"), values=Schema("int32", optional=True)))
    assert wire.type == Map(String(), Integer(32))
    assert wire.decode({"a": 1, "b": None}) == [("a", 1), ("b", None)]
    assert wire.encode([("a", 1)]) == {"a": 1}
    wire = wire_of(Schema("map", keys=Schema("int16"), values=Schema("double")))
    assert wire.encode(wire.decode([(1, 2.5)])) == [[1, 2.5]]


@pytest.mark.parametrize("mode", [mode for mode in TimePrecisionMode if mode.value != "auto"])
@pytest.mark.parametrize(
    "kind", [Date(), Time(3), Time(6), Timestamp(3), Timestamp(6), Timestamp(9), Bits(12)]
)
def test_columns_come_back_in_all_temporal_modes(mode, kind):
    field = field_of(Column("c", kind, nullable=True), Modes(mode))
    column = column_of(field, wire_of_field(field))
    assert type(column.type) is type(kind)
    assert (column.name, column.nullable, column.generated) == ("c", True, False)


@pytest.mark.parametrize(
    ("kind", "source_type", "value"),
    [
        (Integer(64, unsigned=True), "bigint(20) unsigned", 2**64 - 1),
        (Integer(32, unsigned=True), "INT UNSIGNED", 2**32 - 1),
        (Integer(16, unsigned=True), "smallint unsigned zerofill", 65535),
        (Integer(8, unsigned=True), "TINYINT UNSIGNED", 255),
        (Time(6), None, "23:59:59.500000"),
        (Decimal(65, 30), None, decimal.Decimal("1.500000000000000000000000000000")),
    ],
)
def test_values_come_back_where_the_schema_tells_their_type(kind, source_type, value):
    column = Column("c", kind, source_type, nullable=True)
    field = field_of(column, Modes())
    wire = wire_with(field, Modes())
    out = value if wire.encode is None else wire.encode(value)
    raw = json.loads(msgspec.json.encode(out))
    assert wire.type == kind
    assert (raw if wire.decode is None else wire.decode(raw)) == value
    assert losses_of(column, field) == ()


@pytest.mark.parametrize(
    ("kind", "value", "told", "form"),
    [
        (Integer(64, unsigned=True), 2**64 - 1, Decimal(None, 0), "AP//////////"),
        (Array(Integer(64, unsigned=True)), [1, None], Array(Decimal(None, 0)), ["AQ==", None]),
        (Integer(8, unsigned=True), 255, Integer(16), 255),
        (Time(0), "23:59:59", Time(6), 86399000000),
        (Time(), "23:59:59.5", Time(6), 86399500000),
        (Text("citext"), "Ann", String(), "Ann"),
    ],
)
def test_types_that_no_schema_tells_are_written_and_reported(kind, value, told, form):
    column = Column("c", kind, nullable=True)
    field = field_of(column, Modes(TimePrecisionMode.ADAPTIVE_TIME_MICROSECONDS))
    encode = wire_with(field, Modes(), kind).encode
    assert (value if encode is None else encode(value)) == form
    assert wire_of_field(field).type == told
    ((what, _),) = losses_of(column, field)
    assert what == f"type:{str(kind).partition('(')[0].partition('<')[0]}"


@pytest.mark.parametrize(
    ("number", "value"), [(0, 0), (2**63 - 1, 2**63 - 1), (-1, 2**64 - 1), (-(2**63), 2**63)]
)
def test_a_bigint_unsigned_that_wrapped_is_the_unsigned_number(number, value):
    # bigint.unsigned.handling.mode=long, with column.propagate.source.type
    parameters = {"__debezium.source.column.type": "BIGINT UNSIGNED"}
    wire = wire_of_field(Schema("int64", parameters=parameters))
    assert wire.type == Integer(64, unsigned=True)
    assert (wire.decode(number), wire.encode(value)) == (value, number)
    assert wire_of_field(Schema("int64")).decode is None


def test_what_a_field_has_no_attribute_for_is_reported():
    column = Column("c", String(), generated=True)
    field = field_of(column, Modes())
    assert field.optional
    assert losses_of(column, field) == (("schema.generated", "not written"),)


@pytest.mark.parametrize(
    "text", ["VARCHAR(100)", "DECIMAL(10,2)", "bigint(20) unsigned", "timestamp", "numeric(3, 1)"]
)
def test_source_types_travel_as_debeziums_parameters(text):
    field = field_of(Column("c", String(), text, nullable=True), Modes())
    assert column_of(field, wire_of_field(field)).source_type == text
    assert "__debezium.source.column.type" in field.parameter


def test_source_types_have_debeziums_form():
    field = field_of(Column("c", String(), "DECIMAL(10,2)"), Modes())
    assert field.parameter == {
        "__debezium.source.column.type": "DECIMAL",
        "__debezium.source.column.length": "10",
        "__debezium.source.column.scale": "2",
    }


def test_a_point_keeps_its_coordinates_beside_its_bytes():
    wire = wire_of(
        connect_schema.struct(
            (
                *(Schema("double", field=name) for name in "xy"),
                Schema("bytes", field="wkb"),
                Schema("int32", field="srid"),
            ),
            name="io.debezium.data.geometry.Point",
        )
    )
    told = {"x": 1.5, "y": -2.5, "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAATA", "srid": None}
    assert wire.encode(wire.decode(told)) == told


def test_schema_attributes_are_written_in_connects_order():
    schema = Schema(
        "bytes",
        name="n",
        version=1,
        doc="d",
        parameters={"scale": "2"},
        default="AA==",
        field="f",
        optional=True,
    )
    assert list(json.loads(msgspec.json.encode(schema))) == [
        "type", "optional", "name", "version", "doc", "parameters", "default", "field"
    ]  # fmt: skip


# -- names of a vendor ---------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["com.xxx", "com.huawei", "COM.Some.Where"])
@pytest.mark.parametrize("part", ["Decimal", "decimal"])
def test_a_vendors_decimal_is_known_by_the_end_of_its_name(vendor, part):
    wire = wire_of(Schema("string", name=f"{vendor}.cdc.data.{part}"))
    assert wire.type == Decimal()
    assert wire.decode("-1234567890123456789012345678901234567890.10") == decimal.Decimal(
        "-1234567890123456789012345678901234567890.10"
    )


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_vendors_decimal_comes_back_exactly(value):
    assert json_values.number_in(json_values.number_out(value)) == value


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_vendors_decimal_may_be_no_number(text):
    assert json_values.number_out(json_values.number_in(text)) == text


@pytest.mark.parametrize(
    "text", ["", "sNaN", "1_0", " 1", "1\n", "1e99999999", "0x1", "\u0661", "1e", "."]
)
def test_what_is_no_decimal_is_refused(text):
    with pytest.raises(ValueError, match="not a number"):
        json_values.number_in(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-02-04T11:59:56.013", dt.datetime(2024, 2, 4, 11, 59, 56, 13000)),
        ("2024-02-04 11:59:56", dt.datetime(2024, 2, 4, 11, 59, 56)),
        ("1707047996013", dt.datetime(2024, 2, 4, 11, 59, 56, 13000)),
        ("-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
        ("2024-02-04 11:59:56.123456789", "2024-02-04 11:59:56.123456789"),
        ("2024-02-04T11:59:56+08:00", "2024-02-04T11:59:56+08:00"),
        ("infinity", "infinity"),
    ],
)
def test_a_vendors_timestamp_is_read_in_any_form(text, value):
    wire = wire_of(Schema("string", name="com.xxx.cdc.data.timestamp"))
    assert wire.type == Timestamp()
    assert wire.decode(text) == value
    assert wire.decode(wire.encode(value)) == value


def test_a_vendors_other_names_are_text_and_keep_their_name():
    name = "com.xxx.cdc.data.point"
    assert wire_of(Schema("string", name=name)).type == Text(name)
    assert wire_of(Schema("int64", name="com.xxx.cdc.data.Decimal")).type == Integer(64)


@pytest.mark.parametrize("kind", [Decimal(12, 2), Decimal(), Integer(64, unsigned=True)])
def test_a_vendors_decimal_is_written_under_its_name(kind):
    field = field_of(Column("n", kind), Modes(vendor="com.huawei"))
    assert (field.type, field.name) == ("string", "com.huawei.cdc.data.Decimal")
    value = 7 if isinstance(kind, Integer) else decimal.Decimal("7.50")
    written = wire_of(field, kind).encode(value)
    assert written == str(value)


def test_a_vendors_timestamp_is_written_under_its_name_where_its_mode_says_so():
    column = Column("t", Timestamp(6))
    field = field_of(column, Modes(vendor="com.huawei", vendor_timestamps=True))
    assert (field.type, field.name) == ("string", "com.huawei.cdc.data.timestamp")
    value = dt.datetime(2024, 2, 4, 11, 59, 56, 13001)
    assert wire_of(field, column.type).encode(value) == "2024-02-04T11:59:56.013001"
    connect_field = field_of(column, Modes(TimePrecisionMode.CONNECT, vendor="com.huawei"))
    assert connect_field.name == "org.apache.kafka.connect.data.Timestamp"
