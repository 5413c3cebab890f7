# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``spanner-json`` (:mod:`changelane.formats.contract.lane`).

A plain record has the spelling of change streams, documented keys only, and the table, the column
types, the operation and the type of capture of the lane. The columns of its mods are those of the
lane: key columns in ``keys`` and all others in the values. Old values are empty, or complete, or,
if new values are whole rows, any of the columns.
"""

import decimal
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from changelane.event import DataChange, Op, Transaction
from changelane.formats.contract.column_values import lane_column
from changelane.formats.contract.lane import (
    Kind,
    Kinds,
    NotPlainError,
    PlainChange,
    ReadChange,
    ReadChanges,
    attribute,
    compiled_function,
    kinds_of,
    literal,
    plain_class,
    read_one,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.spanner.decode import (
    WHOLE_ROWS,
    WITH_OLD_ROWS,
    Reader,
    commit_time,
    position_of,
    sequence_of,
)
from changelane.formats.spanner.wire import PlainRecord
from changelane.message import Message

_IDENTITY: Final = ("table_name", "mod_type", "value_capture_type")


class _Probe(msgspec.Struct, gc=False):
    """The part of a record that identifies its lane."""

    table_name: str
    mod_type: str
    value_capture_type: str
    column_types: msgspec.Raw


_probe: Final = msgspec.json.Decoder(_Probe).decode
_decode: Final = msgspec.json.Decoder(PlainRecord, float_hook=decimal.Decimal).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> SpannerLane:
        return SpannerLane(reader, message.value or b"", change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the table, the operation, the type of capture and the columns of a record."""
    probe = _probe(value)
    return *(getattr(probe, name) for name in _IDENTITY), bytes(probe.column_types)


class SpannerLane:
    """Reads the plain records of one table, operation and list of columns.

    See :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The record is not plain.
        MsgspecError: The record is not plain.
    """

    is_named = False
    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, value: bytes, change: DataChange) -> None:
        self._record = record = _decode(value)
        self._op = change.op
        columns = reader.columns_of(record, "$")
        if columns.schema != change.schema:
            raise NotPlainError  # a mod with further columns
        self.columns = tuple(
            lane_column(column, columns.readers[column.name]) for column in columns.schema.columns
        )
        names = [column.name for column in columns.schema.columns]
        keys = record.mods[0].keys
        self._keys = [index for index, name in enumerate(names) if name in keys]
        self._others = [index for index, name in enumerate(names) if name not in keys]
        self._has_whole_rows = record.value_capture_type in WHOLE_ROWS
        self._has_old_rows = record.value_capture_type in WITH_OLD_ROWS
        if self._op is Op.DELETE and not self._has_old_rows:
            self.deleted_columns = tuple(names[index] for index in self._keys)

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of records with one mod."""
        return read_one(self.batch_reader(row))

    def batch_reader(self, row: Any) -> ReadChanges:
        """Return the reader of records."""
        read: ReadChanges = self._compiled(
            row, "op, before, after, position, transaction, None, time, None, False"
        )
        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of records with one mod (:class:`EventLane`)."""
        del has_positions  # a record has the whole position
        read_changes: Callable[[bytes, bytes | None], list[PlainChange] | None] = self._compiled(
            row, "op, before, after, position, transaction, None, time, None, True"
        )
        return read_one(read_changes)

    def _compiled(self, row: Any, parts: str) -> Any:
        """Return the reader of records, with these parts of each change."""
        names: dict[str, Any] = {
            "decode": self._decoder(),
            "column_types": bytes(self._record.column_types),
            "row": row,
            "op": self._op.value,
            "commit_time": commit_time,
            "sequence_of": sequence_of,
            "position_of": position_of,
            "Transaction": Transaction,
            "unset": UNSET,
            "no_values": (UNSET,) * len(self._others),
            "values_of": msgspec.structs.astuple,
        }
        lines = [
            *_START,
            *(f"  {line}" for line in self._images()),
            "  position = position_of(time, sequence, index) if has_position else None",
            f"  changes.append(({parts}))",
            " return changes",
        ]
        return compiled_function(lines, names)

    def _images(self) -> list[str]:
        """Return the statements that make the images of a mod."""
        if self._op is Op.DELETE:
            old = "old.{0}" if self._has_old_rows else "None"
            return [f"before, after = {self._image(old)}, None"]
        lines = [f"before, after = None, {self._image('new.{0}')}"]
        if self._op is Op.CREATE:
            return lines
        old = "new.{0} if old.{0} is unset else old.{0}" if self._has_whole_rows else "old.{0}"
        is_part = [] if self._has_whole_rows else [" if unset in old_values: return None"]
        return [
            *lines,
            "old_values = no_values if old is None else values_of(old)",
            "if old_values != no_values:",
            *is_part,
            f" before = {self._image(old)}",
        ]

    def _image(self, value: str) -> str:
        """Return the expression of an image, from that of a column beside the key."""
        values = [
            f"keys.{attribute(index)}" if index in self._keys else value.format(attribute(index))
            for index in range(len(self.columns))
        ]
        return f"row({', '.join(values)})"

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of a record; an error = the record is not plain."""
        nothing: Kind = (self._values_class([]) | None, None)
        whole: Kind = (self._values_class(self._others),) if self._others else nothing
        some: Kind = (self._values_class(self._others, is_whole=False) | None, None)
        match self._op:
            case Op.CREATE:
                new, old = whole, nothing
            case Op.UPDATE:
                new, old = whole, some
            case _:
                new, old = nothing, whole if self._has_old_rows else nothing
        keys = (self._values_class(self._keys),)
        mod: Any = plain_class({"keys": keys, "new_values": new, "old_values": old})
        kinds = kinds_of(PlainRecord)
        kinds |= {name: literal(getattr(self._record, name)) for name in _IDENTITY}
        kinds |= {"mods": (list[mod],), "column_types": (msgspec.Raw,)}
        record = plain_class(kinds)
        return msgspec.json.Decoder(record, float_hook=decimal.Decimal).decode

    def _values_class(self, indexes: Iterable[int], *, is_whole: bool = True) -> Any:
        """Return the class of an object with the values of columns, or of some of them."""
        kinds: Kinds = {}
        for index in indexes:
            json = self.columns[index].json | None
            kinds[attribute(index)] = (json,) if is_whole else (json | UnsetType, UNSET)
        rename = {attribute(index): self.columns[index].column.name for index in indexes}
        return plain_class(kinds, rename)


_START: Final = (
    "def function(value, key):",
    " record, changes = decode(value), []",
    " if bytes(record.column_types) != column_types: return None",
    " time, sequence = commit_time(record, ''), sequence_of(record, '')",
    " has_position = time is not None and time >= 0 and sequence is not None",
    " identity = record.server_transaction_id",
    " transaction = None if identity is None else Transaction(identity)",
    " for index, mod in enumerate(record.mods):",
    "  keys, new, old = mod.keys, mod.new_values, mod.old_values",
)
