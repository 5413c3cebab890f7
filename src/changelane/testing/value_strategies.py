# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for logical types and for their values, extremes included."""

import datetime as dt
import decimal
import string
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from changelane.formats.contract.capabilities import Carries, Extreme
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
    Unknown,
    Uuid,
    Value,
    Xml,
    Year,
)
from changelane.types.values import scaled

text: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Any valid Unicode text, including four-byte and control characters."""

hostile_names: Final = st.sampled_from(
    [
        " ",
        "A",
        "a",
        "a b",
        "a.b",
        'a"; DROP TABLE b',
        "../../x",
        "`a`",
        "'a'",
        "\\",
        "$.a",
        "before",
        "op",
        "__deleted",
        "schema",
        "ключ",
        "表",
        "\U0001f600",
        "a\nb",
        "a\tb",
        "x" * 200,
        "true",
        "null",
        "0",
    ]
)
names: Final = st.one_of(
    st.text(string.ascii_lowercase + "_", min_size=1, max_size=6), hostile_names
)
"""Names of columns and tables."""

_words: Final = st.text(string.ascii_letters + " -_'\u00e4\u8868\U0001f600", min_size=1, max_size=8)
_UTC_YEARS: Final = (dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30, 23, 59, 59, 999999))
_SCALARS: Final = (Boolean(), Integer(32), Integer(64), Float(64), String(), Decimal(10, 2))


def simple_json(depth: int = 2) -> SearchStrategy[Any]:
    """JSON values of an untyped column: numbers with a fraction are ``Decimal``."""
    scalars: SearchStrategy[Any] = st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        text,
        st.decimals("-1e6", "1e6", places=2).filter(lambda value: value != value.to_integral()),
    )
    if depth == 0:
        return scalars
    inner = st.one_of(st.none(), simple_json(depth - 1))
    return st.one_of(
        scalars,
        st.lists(inner, max_size=3),
        st.dictionaries(names, inner, max_size=3),
    )


# -- types --------------------------------------------------------------------------------------

_precisions: Final = st.sampled_from([0, 3, 6])
_member_lists: Final = st.lists(
    st.text(string.ascii_letters + " '", min_size=1, max_size=5),
    min_size=1,
    max_size=4,
    unique=True,
).map(tuple)


@st.composite
def _decimals(draw: st.DrawFn) -> LogicalType:
    precision, scale = draw(
        st.one_of(
            st.sampled_from([(38, 38), (38, 0), (65, 30), (76, 10), (20, 0), (10, 2), (5, -2)]),
            st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(lambda p: p[1] <= p[0]),
        )
    )
    return Decimal(precision, scale)


_TYPES: Final[dict[type[LogicalType], SearchStrategy[LogicalType]]] = {
    Integer: st.builds(Integer, st.sampled_from([8, 16, 32, 64]), st.booleans()),
    Decimal: st.one_of(st.just(Decimal()), _decimals()),
    Float: st.builds(Float, st.sampled_from([32, 64])),
    Bits: st.builds(Bits, st.sampled_from([1, 8, 12, 64])),
    Time: st.builds(Time, _precisions),
    TimeTz: st.builds(TimeTz, _precisions),
    Timestamp: st.builds(Timestamp, _precisions),
    InstantType: st.builds(InstantType, _precisions),
    Interval: st.builds(Interval, st.sampled_from(["us"])),
    Enum: st.builds(Enum, _member_lists),
    Set: st.builds(Set, _member_lists),
    Text: st.builds(Text, st.sampled_from(["ltree", "inet", "tsvector"])),
    GeometryType: st.builds(GeometryType, st.sampled_from(["point", "geometry", "geography"])),
    Array: st.builds(Array, st.sampled_from(_SCALARS)),
    Map: st.just(Map(String(), String())),
    Record: st.just(Record((("a", Integer(32)), ("b", String())))),
}


def types(carries: Carries) -> SearchStrategy[LogicalType]:
    """Logical types that a format carries, with all their parameters."""
    strategies = [_TYPES[kind] if kind in _TYPES else st.just(kind()) for kind in _ordered(carries)]
    return st.one_of(strategies)


def _ordered(carries: Carries) -> list[type[LogicalType]]:
    return sorted(carries.types, key=lambda kind: kind.__name__)


# -- values -------------------------------------------------------------------------------------


def _unscaled(kind: Decimal) -> SearchStrategy[decimal.Decimal]:
    if kind.scale is None:
        return st.tuples(st.integers(-(10**40), 10**40), st.integers(-3, 30)).map(
            lambda parts: scaled(*parts)
        )
    scale, largest = kind.scale, 10 ** (kind.precision or 38) - 1
    return st.one_of(
        st.sampled_from([largest, -largest, 0, 1]), st.integers(-largest, largest)
    ).map(lambda number: scaled(number, scale))


def _cut(moment: dt.datetime, precision: int | None) -> dt.datetime:
    step = 10 ** (6 - min(6 if precision is None else precision, 6))
    return moment.replace(microsecond=moment.microsecond // step * step)


def _time_text(precision: int | None) -> SearchStrategy[str]:
    def show(microseconds: int) -> str:
        sign, magnitude = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
        seconds, fraction = divmod(magnitude, 1_000_000)
        base = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{base}.{fraction:06}"[: len(base) + 1 + digits] if digits else base

    digits = 0 if precision is None else precision
    step = 10 ** (6 - digits)
    return st.integers(0, 24 * 3600 * 1_000_000 // step - 1).map(lambda count: show(count * step))


def _timestamps(kind: Timestamp) -> SearchStrategy[Value]:
    return st.datetimes(*_UTC_YEARS).map(lambda moment: _cut(moment, kind.precision))


def _instants(kind: InstantType) -> SearchStrategy[Value]:
    digits = 6 if kind.precision is None else kind.precision
    return st.datetimes(*_UTC_YEARS, timezones=st.just(dt.UTC)).map(
        lambda moment: Instant.of(_cut(moment, digits), digits)
    )


def _members(kind: Enum | Set) -> SearchStrategy[Value]:
    members = kind.members or ("a",)
    if isinstance(kind, Enum):
        return st.sampled_from(members)
    return st.sets(st.sampled_from(members)).map(
        lambda chosen: ",".join(member for member in members if member in chosen)
    )


def _integers(kind: Integer) -> SearchStrategy[Value]:
    low, high = kind.range()
    return st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high))


def _wkb(kind: GeometryType) -> SearchStrategy[Value]:
    point = bytes.fromhex("0101000000000000000000f03f0000000000000040")
    srids = st.none() if kind.kind == "point" else st.sampled_from([None, 4326])
    return st.builds(Geometry, st.just(point), srids)


def _spans(kind: Interval) -> SearchStrategy[Value]:
    match kind.unit:
        case "us":
            return st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000))
        case "ns":
            return st.integers(-(2**63), 2**63 - 1)
        case _:
            return st.sampled_from(["P1Y2M3DT4H5M6.789S", "P0D", "P-1Y"])


_documents: Final = simple_json().map(lambda value: msgspec.json.encode(value).decode())

_VALUES: Final[dict[type[LogicalType], Callable[[Any], SearchStrategy[Any]]]] = {
    Boolean: lambda _: st.booleans(),
    Integer: _integers,
    Decimal: _unscaled,
    Float: lambda kind: st.floats(width=kind.bits, allow_nan=False, allow_infinity=False),
    String: lambda _: text,
    Bytes: lambda _: st.binary(max_size=12),
    Bits: lambda kind: st.text("01", min_size=kind.length or 1, max_size=kind.length or 9),
    Date: lambda _: st.dates(dt.date(1, 1, 1)),
    Time: lambda kind: _time_text(kind.precision),
    TimeTz: lambda kind: _time_text(kind.precision).map(lambda shown: shown + "Z"),
    Timestamp: _timestamps,
    InstantType: _instants,
    Year: lambda _: st.integers(1901, 2155),
    Interval: _spans,
    Enum: _members,
    Set: _members,
    Json: lambda _: _documents,
    Uuid: lambda _: st.integers(0, 2**128 - 1).map(lambda number: str(uuid.UUID(int=number))),
    Xml: lambda _: st.just("<a/>"),
    Text: lambda _: _words,
    GeometryType: _wkb,
    Array: lambda kind: st.lists(st.one_of(st.none(), values(kind.element)), max_size=3),
    Map: lambda kind: st.lists(
        st.tuples(values(kind.key), st.one_of(st.none(), values(kind.value))),
        max_size=3,
        unique_by=lambda pair: pair[0],
    ),
    Record: lambda kind: st.fixed_dictionaries(
        {name: st.one_of(st.none(), values(field)) for name, field in kind.fields}
    ),
    Unknown: lambda _: simple_json(),
}


def values(kind: LogicalType, extremes: frozenset[Extreme] = frozenset()) -> SearchStrategy[Any]:
    """Non-NULL values of a type, with the given *extremes*."""
    usual = _VALUES[type(kind)](kind)
    match kind:
        case Float() if Extreme.NON_FINITE in extremes:
            beyond = [float("nan"), float("inf"), float("-inf")]
            return st.one_of(usual, st.sampled_from(beyond))
        case Decimal(scale=None) if Extreme.NON_FINITE_DECIMAL in extremes:
            return st.one_of(usual, st.sampled_from([decimal.Decimal("NaN")]))
        case _:
            return usual
