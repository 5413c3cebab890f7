# SPDX-License-Identifier: Apache-2.0
"""The branches of dates and times, in both directions.

``Timestamp``, ``DateTime`` and ``TimestampWithTimeZone``.
"""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any, Final

from changelane import types as t
from changelane.formats.contract.avro_binary import long_of, read_long, read_text, text_of
from changelane.formats.contract.format import Report
from changelane.formats.dts import datetimes
from changelane.formats.dts.avro import branch_of
from changelane.formats.dts.datetimes import Parts, TypeAndValue
from changelane.formats.dts.text_branches import written_interval
from changelane.formats.dts.values import ColumnForm, Read, Write

_TIMESTAMP: Final = branch_of("Timestamp")
_DATE_TIME: Final = branch_of("DateTime")
_ZONED: Final = branch_of("TimestampWithTimeZone")
_NULL: Final = branch_of("null")

# -- reading ---------------------------------------------------------------------------------------


def timestamp_reader(form: ColumnForm) -> Read:
    """Return the reader of ``Timestamp`` in a column."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        seconds, at = read_long(data, at)
        fraction, at = read_long(data, at)
        return _fitting(form, datetimes.instant_of(seconds, _nanoseconds(fraction))), at

    return read


def _nanoseconds(micros: int) -> int:
    """Return a fraction in microseconds as nanoseconds; 1,000,000 and more are nanoseconds."""
    return micros * 1000 if -1_000_000 < micros < 1_000_000 else micros


def _fitting(form: ColumnForm, result: TypeAndValue) -> Any:
    """Return a value as it is if it is of the column's type, else with its type."""
    kind, value = result
    own_type = form.column.type
    if kind == own_type:
        return value
    is_text = isinstance(kind, t.Timestamp) and isinstance(value, str)
    if isinstance(own_type, t.InstantType) and is_text:
        return value  # a zero date has no zone
    return form.typed(value, kind)


def _read_parts(data: bytes, at: int, *, in_microseconds: bool) -> tuple[Parts, int]:
    parts: list[int | None] = []
    for _ in range(7):
        branch = data[at]
        at += 1
        if branch == 2:
            number = data[at]
            if number < 128:
                parts.append((number >> 1) ^ -(number & 1))
                at += 1
            else:
                number, at = read_long(data, at)
                parts.append(number)
        elif branch == 0:
            parts.append(None)
        else:
            raise ValueError
    if in_microseconds and parts[6]:
        parts[6] = _nanoseconds(parts[6])
    return tuple(parts), at  # type: ignore[return-value]


# the usual form: a year of two bytes, all other parts of one byte, no fraction
_USUAL: Final = re.compile(
    rb"\x02[\x80-\xff][\x00-\x7f](?:\x02[\x00-\x7f]){5}\x02\x00", re.DOTALL
).match
_USUAL_BYTES: Final = 15


def _usual(data: bytes, at: int) -> dt.datetime | None:
    """Return a timestamp of the usual form, without reading it part by part."""
    low, high, month, day = data[at + 1], data[at + 2], data[at + 4], data[at + 6]
    hour, minute, second = data[at + 8], data[at + 10], data[at + 12]
    if (low | month | day | hour | minute | second) & 1:
        return None  # a negative part
    try:
        return dt.datetime(
            (low & 127 | high << 7) >> 1, month >> 1, day >> 1, hour >> 1, minute >> 1, second >> 1
        )
    except ValueError:
        return None


def date_time_reader(form: ColumnForm) -> Read:
    """Return the reader of ``DateTime`` in a column."""
    in_microseconds = form.in_microseconds
    is_timestamp = isinstance(form.type, t.Timestamp)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if is_timestamp and _USUAL(data, at):
            value = _usual(data, at)
            if value is not None:
                return value, at + _USUAL_BYTES
        parts, at = _read_parts(data, at, in_microseconds=in_microseconds)
        return _fitting(form, datetimes.value_of(parts)), at

    return read


def zoned_reader(form: ColumnForm) -> Read:
    """Return the reader of ``TimestampWithTimeZone`` in a column."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        parts, at = _read_parts(data, at, in_microseconds=form.in_microseconds)
        zone, at = read_text(data, at)
        return _fitting(form, datetimes.zoned(parts, zone)), at

    return read


# -- writing ---------------------------------------------------------------------------------------


def timestamp_writer(form: ColumnForm) -> Write:
    """Return the writer of a point in time as ``Timestamp``."""

    def write(value: Any, report: Report) -> bytes:
        seconds, ns = datetimes.epoch_parts(value)
        if ns % 1000:
            report((f"value:{form.type_name}", "cut to microseconds"))
        _report_changed(form, datetimes.instant_of(seconds, ns), value, report)
        return _TIMESTAMP + long_of(seconds) + long_of(ns // 1000)

    def zero_date(text: str) -> bytes:
        """Return a zero TIMESTAMP of MySQL, which is no point in time; empty for other texts."""
        try:
            parts = datetimes.timestamp_parts(text)
        except ValueError:
            return b""
        if datetimes.value_of(parts)[1] != text:
            return b""
        return _DATE_TIME + _written_parts(form, parts)

    return _guarded(form, write, zero_date)


def date_time_writer(form: ColumnForm) -> Write:
    """Return the writer of a column of dates or times without a zone."""
    parts_of = datetimes.PARTS_OF[type(form.type)]

    def write(value: Any, report: Report) -> bytes:
        parts = _cut(form, parts_of(value), report)
        _report_changed(form, datetimes.value_of(parts), value, report)
        return _DATE_TIME + _written_parts(form, parts)

    return _guarded(form, write, written_interval if form.type_name == "interval" else None)


def zoned_writer(form: ColumnForm) -> Write:
    """Return the writer of a column of times with a zone."""
    parts_of = datetimes.ZONED_PARTS_OF[type(form.type)]

    def write(value: Any, report: Report) -> bytes:
        parts, zone = parts_of(value)
        parts = _cut(form, parts, report)
        _report_changed(form, datetimes.zoned(parts, zone), value, report)
        return _ZONED + _written_parts(form, parts) + text_of(zone)

    return _guarded(form, write)


def _guarded(
    form: ColumnForm, write: Write, write_text: Callable[[str], bytes] | None = None
) -> Write:
    """Return a writer that has another form, or NULL and a loss, for text of no date or time."""

    def guarded(value: Any, report: Report) -> bytes:
        try:
            return write(value, report)
        except (ValueError, OverflowError):
            if not isinstance(value, str):
                raise
            if write_text is not None and (content := write_text(value)):
                return content
            report((f"value:{form.type_name}", "no calendar date or time; written as null"))
            return _NULL

    return guarded


def _part(number: int | None) -> bytes:
    return b"\x00" if number is None else b"\x02" + long_of(number)


def _written_parts(form: ColumnForm, parts: Parts) -> bytes:
    *front, ns = parts
    if ns is not None and form.in_microseconds:
        ns = ns // 1000 if ns >= 0 else -(-ns // 1000)
    return b"".join(map(_part, front)) + _part(ns)


def _cut(form: ColumnForm, parts: Parts, report: Report) -> Parts:
    """Return parts whose fraction fits the unit, and report a fraction that did not fit."""
    ns = parts[6]
    if not form.in_microseconds or not ns or not ns % 1000:
        return parts
    report((f"value:{form.type_name}", "cut to microseconds"))
    return (*parts[:6], ns - ns % 1000 if ns > 0 else ns + -ns % 1000)


def _report_changed(form: ColumnForm, result: TypeAndValue, value: t.Value, report: Report) -> None:
    """Report a value that a reader returns in another form."""
    if not _is_same(result[1], value):
        report((f"value:{form.type_name}", "read in another form of text"))


def _is_same(result: t.Value, value: t.Value) -> bool:
    """Return whether two values are equal, but for zeros at the end of a fraction."""
    if isinstance(result, str) and isinstance(value, str):
        return _bare(result) == _bare(value)
    classes = (type(value), *type(value).__bases__, dt.datetime)
    return result == value and type(result) in classes


def _bare(text: str) -> str:
    front, dot, fraction = text.partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    bare_digits = digits.rstrip("0")
    return f"{front}{dot if bare_digits else ''}{bare_digits}{fraction[len(digits) :]}"
