# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``lindorm-json``: those of its family, for rows of SQL tables."""

from collections.abc import Hashable

from changelane.event import DataChange
from changelane.formats.contract.lane import Lane, NotPlainError
from changelane.formats.debezium_envelope.envelope_reader import MemberReader
from changelane.formats.debezium_envelope.member_lanes import MemberLane, MemberLanes
from changelane.formats.debezium_envelope.other_events import MILLISECOND
from changelane.formats.lindorm.options import Options, Order, TableKind
from changelane.formats.lindorm.rows import ROW, position_at
from changelane.message import Message
from changelane.position import TimePosition


class LindormLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(self, reader: MemberReader, options: Options) -> None:
        self._lanes = MemberLanes(reader)
        self._options = options

    def identity(self, value: bytes) -> Hashable | None:
        """Return the identity of the lane of a message; ``None`` = the message is not plain."""
        return self._lanes.identity(value)

    def open(self, message: Message, change: DataChange) -> Lane:
        """Return the lane of a message that was decoded into one change.

        Raises:
            NotPlainError: The row may be that of an HBase table.
        """
        lane, kind = self._lanes.open(message, change), self._options.tables
        is_sql = kind is TableKind.SQL or all(c.column.name != ROW for c in lane.columns)
        if kind is TableKind.HBASE or not is_sql:
            raise NotPlainError
        return _TimedLane(lane) if self._options.order is Order.SOURCE_TIME else lane


class _TimedLane:
    """A lane with positions; see :class:`~changelane.formats.contract.lane.TimedLane`."""

    def __init__(self, lane: MemberLane) -> None:
        self.columns = lane.columns
        self.is_named = lane.is_named
        self.deleted_columns = lane.deleted_columns
        self.reader = lane.reader
        self.event_reader = lane.event_reader

    def position_at(self, time_ns: int | None, offset: int | None) -> TimePosition | None:
        """Return the position of a change."""
        return position_at(None if time_ns is None else time_ns // MILLISECOND, offset)
