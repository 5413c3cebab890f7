# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``wal2json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change of version 2 with the action, the table, the columns with their
types and the key of the lane, in the order of the lane. An update has no old row,
its unchanged key, or an old row with all columns and the same key.
"""

import decimal
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from changelane.event import DataChange
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    ReadChange,
    compiled_function,
    literal,
)
from changelane.formats.contract.postgres_text import reader as text_reader
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.wal2json.columns import Read
from changelane.formats.wal2json.decode import OPERATIONS, Reader
from changelane.formats.wal2json.wire import Action, decode_action
from changelane.formats.wal2json.wire import Column as WireColumn
from changelane.message import Message
from changelane.schema import Column
from changelane.types import Array, Boolean, Decimal, Float, Integer, Unknown

_INEXACT: Final = (Decimal, Float, Array)
"""Types whose equal JSON values may be unequal values (NaN)."""


class _Name(msgspec.Struct, gc=False):
    name: str


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    action: Literal[tuple(OPERATIONS)]  # type: ignore[valid-type]
    schema: str | None = None
    table: str | None = None
    columns: list[_Name] | None = None
    identity: list[_Name] | None = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> Wal2JsonLane:
        return Wal2JsonLane(reader, message.value or b"", change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the action, the table and the columns of a message."""
    probe = _probe(value)
    columns, identity = map(_names_of, (probe.columns, probe.identity))
    return probe.action, probe.schema, probe.table, columns, identity


def _names_of(columns: list[_Name] | None) -> tuple[str, ...] | None:
    return None if columns is None else tuple([column.name for column in columns])


class Wal2JsonLane:
    """Reads the plain messages of one table and action, with one list of columns.

    See :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        Exception: The message is not plain.
    """

    is_named = False
    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, value: bytes, change: DataChange) -> None:
        self._reader = reader
        self._action = action = decode_action(value)
        self._op = change.op.value
        self._parts = parts = action.identity if self._op == "d" else action.columns
        row = reader.row(parts, "$")
        if not parts or row is None or row.plan.schema is None:
            raise NotPlainError
        if row.plan.schema is not change.schema:
            raise NotPlainError  # an old row with further columns
        self.columns = tuple(
            LaneColumn(column, *_json_form(column, read, part.value))
            for column, read, part in zip(
                change.schema.columns, row.plan.readers, parts, strict=True
            )
        )
        self._indexes = {part.name: index for index, part in enumerate(parts)}
        self._old = action.identity if self._op == "u" else None
        self._keeps_old_row = change.before is not None
        for part in self._old or ():
            column = self.columns[self._indexes[part.name]].column
            if part.type != column.source_type or part.optional is not None:
                raise NotPlainError
            if not self._keeps_old_row and isinstance(column.type, _INEXACT):
                raise NotPlainError
        if self._old and self._keeps_old_row and not _has_names(self._old, self._indexes):
            raise NotPlainError

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        parts, op = self._parts or (), self._op
        names: dict[str, Any] = {
            "decode": self._decoder(),
            "row": row,
            "coordinates": self._reader.coordinates,
        }
        image, member = _image("part", len(parts)), "identity" if op == "d" else "columns"
        images = f"{image}, None" if op == "d" else f"None, {image}"
        checks = [check for index, part in enumerate(parts) for check in _checks(index, part)]
        lines = [f"{_targets('part', range(len(parts)))} = message.{member}", *checks]
        if self._old is not None:
            indexes = [self._indexes[part.name] for part in self._old]
            lines.append(f"{_targets('old', indexes)} = message.identity")
            if self._keeps_old_row:
                images = f"{_image('old', len(parts))}, {image}"
            else:
                lines += [line for index in indexes for line in _same_value(index)]
        lines = [
            "def function(value, key):",
            " message = decode(value)",
            *(f" {line}" for line in lines),
            " at = coordinates(message)",
            f" return {op!r}, {images}, at.position, at.transaction, None, at.time_ns, None, False",
        ]
        read: ReadChange = compiled_function(lines, names)
        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events, which have no details (:class:`EventLane`)."""
        del has_positions  # a message has the whole position
        return self.reader(row)

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        action = self._action
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default) for field in msgspec.structs.fields(Action)
        }
        pk = None if action.pk is None else [_class_of(name=part.name) for part in action.pk]
        kinds |= {name: literal(getattr(action, name)) for name in ("action", "schema", "table")}
        kinds |= {
            "columns": _list_of(self._classes(action.columns)),
            "identity": _list_of(self._classes(action.identity)),
            "pk": _list_of(pk),
        }
        fields: list[Any] = [(name, *kind) for name, kind in kinds.items()]
        message = msgspec.defstruct("PlainAction", fields, kw_only=True, gc=False)
        return msgspec.json.Decoder(message, float_hook=decimal.Decimal).decode

    def _classes(self, parts: Sequence[WireColumn] | None) -> list[Any] | None:
        """Return the classes of the columns of a row."""
        if parts is None:
            return None
        return [
            _class_of(
                name=part.name,
                type=part.type,
                optional=part.optional,
                value=self.columns[self._indexes[part.name]].json | None,
            )
            for part in parts
        ]


def _json_form(column: Column, read: Read, value: Any) -> tuple[Any, Read | None]:
    """Return the JSON type of a column, and the function that reads it; ``None`` = it is the value.

    Args:
        column: The column.
        read: Its reader on the event path.
        value: Its value in the message that opens the lane. With options of the plugin, numbers are
            texts.
    """
    match column.type:
        case Integer() as kind if value.__class__ is int:
            least, most = kind.range()
            return Annotated[int, msgspec.Meta(ge=least, le=most)], None
        case Boolean() if value.__class__ is bool:
            return bool, None
        case Integer() | Decimal() | Float() | Boolean() | Unknown():
            return Any, read
        case kind:
            return str, None if text_reader(kind) is None else read


def _list_of(classes: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the type of a list with one object of each class, and its default if there is none."""
    return (None, None) if classes is None else (tuple[tuple(classes)],)  # type: ignore[misc]


def _class_of(*, value: Any = None, **parts: Any) -> Any:
    """Return the class of the objects of a column, with one name and one type."""
    fields: list[Any] = [(name, *literal(part)) for name, part in parts.items()]
    if isinstance(parts.get("optional"), bool):
        fields = [(name, *kind) for name, *kind in fields if name != "optional"]
        fields.append(("optional", bool))
    if value is not None:
        fields.append(("value", value))
    return msgspec.defstruct("PlainColumn", fields, kw_only=True, gc=False)


def _has_names(parts: Sequence[WireColumn], names: Iterable[str]) -> bool:
    return [part.name for part in parts] == list(names)


# -- the text of the reader ------------------------------------------------------------------------


def _targets(variable: str, indexes: Iterable[int]) -> str:
    """Return the target of an assignment of the columns of a row."""
    return "".join(f"{variable}{index}, " for index in indexes).rstrip()


def _image(variable: str, count: int) -> str:
    """Return the expression of an image."""
    return f"row({', '.join(f'{variable}{index}.value' for index in range(count))})"


def _checks(index: int, part: WireColumn) -> list[str]:
    """Return the checks of a column beyond its class."""
    if part.optional is None:
        return []
    checks = [f"if part{index}.optional is not {part.optional}: return None"]
    if not part.optional:  # a number that is NULL may be NaN
        checks.append(f"if part{index}.value is None: return None")
    return checks


def _same_value(index: int) -> list[str]:
    """Return the check that a column of the key has its old value."""
    return [
        f"new, old = part{index}.value, old{index}.value",
        "if new != old or new.__class__ is not old.__class__: return None",
    ]
