# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``ticdc-open-json`` (:mod:`changelane.formats.contract.lane`).

A plain message has row changes of one table only. Their rows have the columns of the lane in its
order, with its types, flags and marks of the handle key. The old row of an update has all of these
columns, or some of them with values, and the same key.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Annotated, Any, Final

import msgspec

from changelane.event import DataChange
from changelane.formats.contract.column_values import Read
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    ReadChanges,
    attribute,
    compiled_function,
    literal,
    read_one,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.tidb_time_stamps import position_of, time_ns
from changelane.formats.ticdc.open.columns import TEXTS
from changelane.formats.ticdc.open.decode import Reader
from changelane.formats.ticdc.open.wire import (
    ROW,
    VERSION,
    EventKey,
    decode_key,
    decode_row,
    frames,
)
from changelane.message import Message
from changelane.types import Integer, LogicalType, String

_Names = dict[str, dict[str, msgspec.Raw] | None]
_MOST_CHECKED: Final = 1 << 63
"""msgspec checks numbers below this one."""
_names_of: Final = msgspec.json.Decoder(_Names).decode
"""Returns the columns of each row in a value, in the order of the message."""


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> TicdcOpenLane:
        return TicdcOpenLane(reader, message, change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the columns of the first row of a message."""
    (first, *_) = frames(value, 0, "$.value")
    rows = _names_of(first)
    return tuple(rows.get("d") or rows["u"] or ())


class TicdcOpenLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        Exception: The message is not plain.
    """

    is_named = False
    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, message: Message, change: DataChange) -> None:
        (key, *_) = frames(message.key or b"", len(VERSION), "$.key")
        (value, *_) = frames(message.value or b"", 0, "$.value")
        self._key = decode_key(key)
        row = decode_row(value)
        columns = row.u if row.d is None else row.d
        if not columns:
            raise NotPlainError
        _, plan = reader.image(self._key, columns, "$")
        if plan.schema != change.schema:
            raise NotPlainError  # an old row with further columns
        self._op = reader.op_without_old_row.value
        self._plan = plan
        self.columns = tuple(
            LaneColumn(column, *_json_form(column.type, code, read, part.v))
            for column, part, (_, code, *_, read) in zip(
                plan.schema.columns, columns.values(), plan.columns, strict=True
            )
        )

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages with one event."""
        return read_one(self.batch_reader(row))

    def batch_reader(self, row: Any) -> ReadChanges:
        """Return the reader of messages."""
        read: ReadChanges = self._compiled(
            row, "op, before, after, position, None, None, time, None, False"
        )
        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of messages with one event (:class:`EventLane`)."""
        del has_positions  # a message has the whole position
        has_details = "head.rid is not None or head.ptn is not None"
        parts = f"op, before, after, position, None, None, time, None, {has_details}"
        read_changes: Callable[[bytes, bytes | None], list[PlainChange] | None]
        read_changes = self._compiled(row, parts)
        return read_one(read_changes)

    def _compiled(self, row: Any, parts: str) -> Any:
        """Return the reader of messages, with these parts of each change."""
        names: dict[str, Any] = {
            "version": VERSION,
            "frames": frames,
            "decode_key": self._key_decoder(),
            "decode": self._decoder(),
            "names_of": _names_of,
            "column_names": tuple(column.column.name for column in self.columns),
            "plain_op": self._op,
            "row": row,
            "position_of": position_of,
            "time_ns": time_ns,
            "unset": msgspec.UNSET,
        }
        marks = [is_handle for *_, is_handle, _ in self._plan.columns]
        columns = [f"columns.{attribute(index)}" for index in range(len(marks))]
        lines = [
            *_START,
            *_mark_checks("  ", columns, marks),
            f"  image = row({', '.join(f'{column}.v' for column in columns)})",
            "  before, after = (image, None) if op == 'd' else (None, image)",
            "  if rows.p is not None:",
            "   op, old, is_whole, has_null = 'u', rows.p, True, False",
        ]
        for index, (column, mark) in enumerate(zip(columns, marks, strict=True)):
            value = f"value{index}"
            lines += [
                f"   column = old.{attribute(index)}",
                f"   if column is unset: {value}, is_whole = {column}.v, False",
                "   else:",
                *_mark_checks("    ", ["column"], [mark]),
                f"    {value} = column.v",
                f"    if {value} is None: has_null = True",
            ]
        lines += [
            "   if has_null and not is_whole: return None",
            f"   before = row({', '.join(f'value{index}' for index in range(len(marks)))})",
            "  position, time = position_of(head.ts, ''), time_ns(head.ts)",
            f"  changes.append(({parts}))",
            " return changes",
        ]
        return compiled_function(lines, names)

    def _key_decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of an event's key; an error = the message is not plain."""
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default) for field in msgspec.structs.fields(EventKey)
        }
        kinds |= {name: literal(getattr(self._key, name)) for name in ("scm", "tbl")}
        kinds |= {"t": literal(ROW), "ohk": (None, None), "ccl": (None, None)}
        return _decoder("PlainKey", kinds)

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of an event's value; an error = the message is not plain."""
        cells = [
            _cell_class(code, flags, is_handle, column.json)
            for (_, code, flags, is_handle, _), column in zip(
                self._plan.columns, self.columns, strict=True
            )
        ]
        column_names = [column.column.name for column in self.columns]
        rename = {attribute(index): name for index, name in enumerate(column_names)}
        whole, part = (
            msgspec.defstruct(
                "PlainRow",
                [(attribute(index), *kind) for index, kind in enumerate(kinds)],
                rename=rename,
                forbid_unknown_fields=True,
                gc=False,
            )
            for kinds in (
                [(cell,) for cell in cells],
                [(cell | msgspec.UnsetType, msgspec.UNSET) for cell in cells],
            )
        )
        kinds = {"u": (whole | None, None), "p": (part | None, None), "d": (whole | None, None)}
        return _decoder("PlainValue", kinds)


def _json_form(kind: LogicalType, code: int, read: Read, value: Any) -> tuple[Any, Read | None]:
    """Return the JSON type of a column, and the function that reads it; ``None`` = it is the value.

    Args:
        kind: The type of the column.
        code: Its type code.
        read: Its reader on the event path.
        value: Its value in the message that opens the lane.
    """
    if isinstance(kind, String) and code in TEXTS:
        return str, None
    if value.__class__ is str:
        return str, read
    if isinstance(kind, Integer) and value.__class__ is int:
        least, most = kind.range()
        if most < _MOST_CHECKED:
            return Annotated[int, msgspec.Meta(ge=least, le=most)], None
        return int, read
    return Any, read


def _cell_class(code: int, flags: int | None, is_handle: bool | None, json: Any) -> Any:  # noqa: FBT001
    """Return the class of the objects of a column."""
    fields: list[Any] = [("t", *literal(code)), ("f", *literal(flags)), ("v", json | None)]
    fields.append(("h", None, None) if is_handle is None else ("h", bool))
    return msgspec.defstruct("PlainColumn", fields, kw_only=True, gc=False)


def _decoder(name: str, kinds: dict[str, tuple[Any, ...]]) -> Callable[[bytes], Any]:
    fields: list[Any] = [(field, *kind) for field, kind in kinds.items()]
    plain = msgspec.defstruct(name, fields, kw_only=True, gc=False)
    return msgspec.json.Decoder(plain, float_hook=decimal.Decimal).decode


# -- the text of the reader ------------------------------------------------------------------------

_START: Final = (
    "def function(value, key):",
    " if key is None or not key.startswith(version): return None",
    " keys, values, changes = frames(key, len(version), ''), frames(value, 0, ''), []",
    " if len(keys) != len(values): return None",
    " for key_part, value_part in zip(keys, values):",
    "  head, rows, names = decode_key(key_part), decode(value_part), names_of(value_part)",
    "  if rows.d is None: op, columns, names = plain_op, rows.u, names['u']",
    "  elif rows.u is None and rows.p is None: op, columns, names = 'd', rows.d, names['d']",
    "  else: return None",
    "  if tuple(names) != column_names: return None",
)


def _mark_checks(indent: str, columns: list[str], marks: list[bool | None]) -> list[str]:
    """Return the checks of the marks of the handle key, for which JSON types have no literal."""
    return [
        f"{indent}if {column}.h is not {mark}: return None"
        for column, mark in zip(columns, marks, strict=True)
        if mark is not None
    ]
