# SPDX-License-Identifier: Apache-2.0
"""Compares events within the capabilities of a format."""

import datetime as dt
import decimal
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from changelane.codec import Codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.event import (
    ChangeEvent,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    Op,
    Tombstone,
    Truncate,
    has_partial_after,
)
from changelane.formats.contract.capabilities import Carries, SchemaDetail
from changelane.formats.contract.losses import Loss
from changelane.message import Message
from changelane.schema import TableSchema
from changelane.types import Bits, InstantType, Time, Timestamp, TimeTz, Value

_PLAIN = ("op", "table", "position", "transaction", "source", "source_time_ns", "process_time_ns")
_OWN = ("action", "ddl", "status", "prefix", "content", "type", "text")


_NO_ZEROS: Final[Mapping[str, re.Pattern[str]]] = {}


def same_value(got: Value, want: Value) -> bool:
    """Whether two values have equal types and values: 1, True and 1.0 are different."""
    if isinstance(got, dt.datetime) and isinstance(want, dt.datetime):
        return (got.tzinfo is None) == (want.tzinfo is None) and got == want
    if type(got) is not type(want):
        return False
    match got, want:
        case (float() as a, float() as b):
            return a == b or (math.isnan(a) and math.isnan(b))
        case (decimal.Decimal() as a, decimal.Decimal() as b):
            # a signaling NaN cannot be compared
            return (a.is_nan() and b.is_nan()) or (not a.is_nan() and not b.is_nan() and a == b)
        case (list() | tuple() as a, list() | tuple() as b):
            return len(a) == len(b) and all(map(same_value, a, b))
        case (dict() as a, dict() as b):
            return a.keys() == b.keys() and all(same_value(a[name], b[name]) for name in a)
        case _:
            return got == want


def differences(got: ChangeEvent, want: ChangeEvent, carries: Carries) -> tuple[str, ...]:
    """Return the differences between a decoded event and the encoded one.

    Additions of the format are no differences: a new source type, the key's origin, further fields
    of the producer.
    """
    if type(got) is not type(want):
        return (f"kind: {type(got).__name__} instead of {type(want).__name__}",)
    return tuple(_differences(got, want, carries))


def _differences(got: ChangeEvent, want: ChangeEvent, carries: Carries) -> Iterator[str]:
    for field in (*_PLAIN, *_OWN):
        got_field, want_field = getattr(got, field, None), getattr(want, field, None)
        if field == "ddl" and want_field is None and isinstance(want, Truncate):
            continue  # formats with truncates as statements generate the text
        if got_field != want_field:
            yield f"{field}: {got_field!r} instead of {want_field!r}"
    yield from _keys(getattr(got, "key", None), getattr(want, "key", None))
    bare = insignificant_zeros(getattr(want, "schema", None))
    for field in ("before", "after", "moved_to"):
        yield from _images(field, getattr(got, field, None), getattr(want, field, None), bare)
    got_field, want_field = getattr(got, "schema", None), getattr(want, "schema", None)
    if carries.schema is not SchemaDetail.NONE and want_field is not None:
        yield from _schemas(
            got_field, want_field, carries, _nulls(want) if carries.untyped_nulls else set()
        )
    details = getattr(got, "details", {})
    for name, value in getattr(want, "details", {}).items():
        if name not in details or details[name] != value:
            yield f"details.{name}"


def _keys(got: Key | Image | None, want: Key | Image | None) -> Iterator[str]:
    if isinstance(want, Key) and isinstance(got, Key):
        if got.columns != want.columns:
            yield f"key: {got.columns} instead of {want.columns}"
    elif isinstance(got, Key) or isinstance(want, Key):
        yield f"key: {got!r} instead of {want!r}"
    else:
        yield from _images("key", got, want)


def _images(
    field: str,
    got: Image | None,
    want: Image | None,
    bare: Mapping[str, re.Pattern[str]] = _NO_ZEROS,
) -> Iterator[str]:
    if got is None or want is None:
        if got is not want:
            yield f"{field}: {'missing' if got is None else 'invented'}"
        return
    for name in [*want, *(name for name in got if name not in want)]:
        if name not in got or name not in want:
            yield f"{field}.{name}: {'absent' if name not in got else 'invented'}"
        elif not same_value(*(stripped(bare.get(name), image[name]) for image in (got, want))):
            yield f"{field}.{name}: {got[name]!r} instead of {want[name]!r}"


def insignificant_zeros(schema: TableSchema | None) -> Mapping[str, re.Pattern[str]]:
    """Return the columns with insignificant zeros in their text -> a pattern of these zeros.

    Insignificant are trailing zeros in the fraction of a time as text, and leading zeros of bits
    without a known length.
    """
    columns = () if schema is None else schema.columns
    return {
        column.name: _LEADING if column.type == Bits() else _TRAILING
        for column in columns
        if isinstance(column.type, _TIMES) or column.type == Bits()
    }


_TIMES: Final = (Time, TimeTz, Timestamp, InstantType)


_TRAILING: Final = re.compile(r"\.0+(?![0-9])|(?<=\.)([0-9]*[1-9])0+(?![0-9])")
_LEADING: Final = re.compile(r"^0+(?=.)()")


def stripped(zeros: re.Pattern[str] | None, value: Value) -> Value:
    """Return a text without the insignificant zeros of :func:`insignificant_zeros`."""
    return zeros.sub(r"\1", value) if zeros is not None and isinstance(value, str) else value


def _nulls(event: ChangeEvent) -> AbstractSet[str]:
    """Return the columns that are NULL in all images."""
    images = [getattr(event, field, None) or {} for field in ("before", "after")]
    schema = getattr(event, "schema", None)
    names = () if schema is None else schema.names
    return {name for name in names if all(image.get(name) is None for image in images)}


def _schemas(
    got: TableSchema | None, want: TableSchema, carries: Carries, nulls: AbstractSet[str]
) -> Iterator[str]:
    if got is None:
        yield "schema: missing"
        return
    names = [column.name for column in got.columns]
    want_names = [column.name for column in want.columns]
    if names != want_names:
        yield f"schema: columns {names} instead of {want_names}"
        return
    for got_column, want_column in zip(got.columns, want.columns, strict=True):
        if type(got_column.type) is not type(want_column.type) and got_column.name not in nulls:
            yield f"schema.{got_column.name}: {got_column.type} instead of {want_column.type}"
        if carries.schema is SchemaDetail.FULL and want_column.source_type not in {
            None,
            got_column.source_type,
        }:
            yield (
                f"schema.{got_column.name}: {got_column.source_type!r} "
                f"instead of {want_column.source_type!r}"
            )
        if carries.column_flags:
            for flag in ("nullable", "generated", "default"):
                got_flag, want_flag = getattr(got_column, flag), getattr(want_column, flag)
                if want_flag is not None and got_flag != want_flag:
                    yield f"schema.{got_column.name}.{flag}: {got_flag!r} instead of {want_flag!r}"


def explains(difference: str, losses: Iterable[Loss]) -> bool:
    """Return whether one of the losses may be the cause of a difference."""
    causes = _CAUSES.get(_group(difference), _EVENT_LOSSES)
    return any(_group(field) in causes for field, _ in losses)


def _group(field: str) -> str:
    """Return the group of a loss, or the part of an event in which a difference is."""
    return re.split("[.:]", field)[0]


_EVENT_LOSSES: Final = frozenset({"event", "half", "operation", "key_change", "pair", "other_key"})
_VALUE_LOSSES: Final = frozenset(
    {"absent", "column", "null", "schema", "type", "unavailable", "value"}
)
_CAUSES: Final = {
    "op": _EVENT_LOSSES,
    "key": frozenset({"key", "schema"}),
    "before": _VALUE_LOSSES | {"before"},
    "after": _VALUE_LOSSES | {"after"},
    "schema": _VALUE_LOSSES | {"before", "after"},
    "table": frozenset({"table", "event"}),
    "position": frozenset({"position"}),
    "transaction": frozenset({"transaction"}),
    "source": frozenset({"source"}),
    "source_time_ns": frozenset({"source_time"}),
    "process_time_ns": frozenset({"process_time"}),
    "details": frozenset({"details"}),
    "ddl": frozenset({"ddl", "event"}),
    "action": frozenset({"action", "event"}),
}
"""The part of an event -> the groups of losses that may change it."""


def is_whole_update(event: ChangeEvent) -> bool:
    """Return whether an event is an update whose after image has all columns of its table."""
    if not isinstance(event, DataChange) or event.op is not Op.UPDATE or event.after is None:
        return False
    names = frozenset(event.after) if event.schema is None else event.schema.names
    return names <= event.after.keys() and not has_partial_after(event)


def decode_all(codec: Codec, messages: Sequence[Message]) -> list[ChangeEvent]:
    """Decode messages as one stream, and join the halves of updates."""
    decoded = (event for message in messages for event in codec.decode(message))
    return list(run(JoinHalves(), decoded))


def without_echoes(events: list[ChangeEvent]) -> list[ChangeEvent]:
    """Return events without the tombstones after their deletes, which are redundant."""
    remaining: list[ChangeEvent] = []
    for event in events:
        last = remaining[-1] if remaining else None
        if isinstance(event, Tombstone) and isinstance(last, DataChange | HalfUpdate):
            continue
        remaining.append(event)
    return remaining


def shown(event: ChangeEvent) -> str:
    """Return an event as text for the error of a check."""
    return str(msgspec.to_builtins(event, str_keys=True, enc_hook=repr))
