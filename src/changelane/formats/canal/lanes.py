# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``canal-json`` (:mod:`changelane.formats.contract.lane`).

A plain message has rows in which all columns have a text or null. Its maps of types and its key
columns have the bytes of the lane. It has no ``_tidb``, and only an update has old rows, one for
each row.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec

from changelane.event import DataChange
from changelane.formats.canal.decode import ROW_OPERATIONS, Reader, ReadOptions, details_of
from changelane.formats.canal.wire import FlatMessage
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    ReadChanges,
    attribute,
    literal,
    read_one,
)
from changelane.message import Message

_OPERATIONS: Final = {name: op.value for name, op in ROW_OPERATIONS.items()}
_MAPS: Final = ("mysqlType", "sqlType", "pkNames")


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    mysqlType: msgspec.Raw  # noqa: N815 - the producer's name
    sqlType: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the producer's name
    pkNames: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the producer's name
    database: str | None = None
    table: str | None = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


class CanalLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(self, reader: Reader, options: ReadOptions) -> None:
        self._reader = reader
        dialect, row_image = options.dialect, options.row_image
        is_usual = dialect.delete_row_in == "data" and not dialect.update_swapped
        self._has_lanes = is_usual and row_image == "auto"

    def identity(self, value: bytes) -> Hashable | None:
        """Return the maps of types, the key columns and the table of a message."""
        try:
            probe = _probe(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return *_maps_of(probe), probe.database, probe.table

    def open(self, message: Message, change: DataChange) -> "CanalLane":
        """Return the lane of a message."""
        if not self._has_lanes:
            raise NotPlainError
        return CanalLane(self._reader, message, change)


def _maps_of(message: Any) -> tuple[bytes, bytes, bytes]:
    return bytes(message.mysqlType), bytes(message.sqlType), bytes(message.pkNames)


class CanalLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
    """

    is_named = False
    deleted_columns = None

    def __init__(self, reader: Reader, message: Message, change: DataChange) -> None:
        self._reader = reader
        self._message = flat = msgspec.json.decode(message.value or b"", type=FlatMessage)
        self._plan = plan = reader.plan(flat)
        if plan.schema is None or not plan.schema.columns or plan.schema is not change.schema:
            raise NotPlainError
        self.columns = tuple(
            LaneColumn(column, str, plan.readers.get(column.name)) for column in plan.schema.columns
        )

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages with one row."""
        return read_one(self.batch_reader(row))

    def batch_reader(self, row: Any) -> ReadChanges:
        """Return the reader of messages."""
        return self._changes_reader(row, has_details=False)

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of messages with one row (:class:`EventLane`)."""
        del has_positions  # plain messages have none
        return read_one(self._changes_reader(row, has_details=True))

    def _changes_reader(self, row: Any, *, has_details: bool) -> ReadChanges:
        """Return the reader of messages; *has_details*: changes state it, and the process time."""
        decode, sql_types = self._decode(row), self._plan.sql_types
        maps, time_of, unset = _maps_of(self._message), self._reader.time, msgspec.UNSET
        values_of = msgspec.structs.astuple

        def before_of(image: Any, old: Any) -> Any:
            if old is None:
                return None
            values = zip(values_of(image), values_of(old), strict=True)
            return row(*(new if changed is unset else changed for new, changed in values))

        def read(value: bytes, _key: bytes | None) -> list[PlainChange] | None:
            message = decode(value)
            op = _OPERATIONS[message.type]
            if message.isDdl or _maps_of(message) != maps:
                return None
            images, old_images = message.data, message.old
            process_ns = time_of(message.ts, "ts")  # an error is an error of the message
            time_ns = time_of(message.es, "es")
            is_detailed = has_details and bool(details_of(message, sql_types))
            if op == "d":
                pairs = [(image, None) for image in images]
            else:
                pairs = [(None, image) for image in images]
            if old_images is not None:
                if op != "u" or len(old_images) != len(images):
                    return None
                pairs = [
                    (before_of(image, old), image)
                    for image, old in zip(images, old_images, strict=True)
                ]
            return [
                (op, before, after, None, None, None, time_ns, process_ns, is_detailed)
                for before, after in pairs
            ]

        return read

    def _decode(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        flat = self._message
        old: Any = msgspec.defstruct(
            "OldRow",
            [
                (attribute(index), str | None | msgspec.UnsetType, msgspec.UNSET)
                for index in range(len(self.columns))
            ],
            rename={attribute(i): column.column.name for i, column in enumerate(self.columns)},
            forbid_unknown_fields=True,
            gc=False,
        )
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default) for field in msgspec.structs.fields(FlatMessage)
        }
        kinds |= {
            "type": (Literal[tuple(_OPERATIONS)],),
            "data": (list[row],),
            "old": (list[old | None] | None, None),
            "updateBefore": (None, None),
            "tidb": (None, None),
            "database": literal(flat.database),
            "table": literal(flat.table),
        }
        fields: list[Any] = [(name, *kind) for name, kind in kinds.items()]
        message = msgspec.defstruct(
            "PlainMessage", fields, rename={"tidb": "_tidb"}, kw_only=True, gc=False
        )
        return msgspec.json.Decoder(message).decode
