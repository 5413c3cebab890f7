# SPDX-License-Identifier: Apache-2.0
"""The messages of wal2json in their order, which state more than each of them alone.

The begin of a transaction has the LSN of its commit, by which its rows are ordered. An insert lists
all columns of its table, by which the columns that an update omits are unchanged.
"""

from typing import Final

import msgspec

from changelane.event import ChangeEvent, Completeness, DataChange, Op, Tombstone
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.wal2json.decode import MARKERS, Coordinates, Reader
from changelane.formats.wal2json.wire import Action, Change, ChangeSet, load
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.schema import TableId, TableSchema
from changelane.types import UNAVAILABLE

_MOST_TABLES: Final = 4096
_NOWHERE: Final = Coordinates()
_UNKNOWN: Final = Completeness.UNKNOWN


class Stream:
    """Decodes the messages of one stream in their order."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._coordinates: Coordinates | None = None
        self._count = 0
        self._last_lsn: int | None = None
        self._tables: BoundedCache[TableId, TableSchema] = BoundedCache(_MOST_TABLES)

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode the next message of the stream."""
        if message.value is None:
            return (Tombstone(TableId()),)
        loaded = load(message.value)
        events: tuple[ChangeEvent, ...]
        match loaded:
            case None:
                self._coordinates = None
                events = ()
            case Action():
                events = (self._event(loaded),)
            case Change():
                events = (self._chunk(loaded),)
            case ChangeSet():
                events = self._reader.events(loaded)
                # the chunks of a transaction follow the message without changes
                self._coordinates = None if loaded.change else self._reader.commit(loaded)
                self._count = 0
        return tuple([self._with_columns(event) for event in events])

    def _event(self, action: Action) -> ChangeEvent:
        own = self._reader.coordinates(action)
        if action.action in MARKERS:
            is_begin = action.action == "B"
            self._coordinates, self._count = own if is_begin else None, 0
            return self._reader.event(action, own)
        if action.action == "M" and not action.transactional:
            return self._reader.event(action, own)
        opened = self._coordinates
        if opened is not None and own.transaction not in {None, opened.transaction}:
            opened = self._coordinates = None  # the begin of another transaction is missing
        if opened is not None and (opened.position is not None or own.position is None):
            return self._reader.event(action, self._next(opened, own))
        lsn = None if own.position is None else own.position.value
        self._count = self._count + 1 if lsn == self._last_lsn else 0
        self._last_lsn = lsn
        if lsn is not None:
            position = SequencePosition(lsn, self._count)
            own = msgspec.structs.replace(own, position=position)
        return self._reader.event(action, own)

    def _chunk(self, change: Change) -> ChangeEvent:
        opened = self._coordinates
        coordinates = _NOWHERE if opened is None else self._next(opened, _NOWHERE)
        return self._reader.change(change, coordinates, "$")

    def _next(self, opened: Coordinates, own: Coordinates) -> Coordinates:
        """Return the coordinates of the next change of the open transaction."""
        count, self._count = self._count, self._count + 1
        commit = opened.position
        return Coordinates(
            None if commit is None else SequencePosition(commit.value, count),
            own.transaction or opened.transaction,
            own.time_ns if opened.time_ns is None else opened.time_ns,
        )

    def _with_columns(self, event: ChangeEvent) -> ChangeEvent:
        """Return an event with all columns of its table, if an insert listed them.

        A column that was dropped since then is unavailable, which changes no row.
        """
        if not isinstance(event, DataChange) or event.schema is None:
            return event
        if event.op is Op.CREATE:
            self._tables.add(event.table, event.schema)
            return event
        schema = self._tables.get(event.table)
        if schema is None or not _is_part(event.schema, schema):
            return event
        after = event.after
        if after is not None and len(after) < len(schema.columns):
            after = {column.name: after.get(column.name, UNAVAILABLE) for column in schema.columns}
        return msgspec.structs.replace(
            event, after=after, schema=schema, before_holds=_UNKNOWN, after_holds=_UNKNOWN
        )


def _is_part(part: TableSchema, schema: TableSchema) -> bool:
    """Whether a schema has all columns of another one, with their types."""
    columns = schema.by_name
    return all(
        (whole := columns.get(column.name)) is not None and whole.source_type == column.source_type
        for column in part.columns
    )
