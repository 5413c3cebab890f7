# SPDX-License-Identifier: Apache-2.0
"""``maxwell-json``: the messages of Maxwell's daemon for MySQL and MariaDB.

Product: Maxwell (https://maxwells-daemon.io/dataformat/, https://github.com/zendesk/maxwell).
Versions studied: 1.x, by the documentation and the classes ``RowMap``, ``RowIdentity``,
``BinlogConnectorEvent``, ``DDLMap`` and those of ``schema/columndef``.

Sample::

    {"database":"test","table":"e","type":"update","ts":1477053234,"xid":23396,"commit":true,
     "position":"master.000006:800911","server_id":23042,"thread_id":108,"data":{"id":1,"m":5.444,
     "c":"2016-10-21 05:33:54.631000","comment":"I am a creature of light."},
     "old":{"m":4.2341,"c":"2016-10-21 05:33:37.523000"}}

Choices: the before image of an update is ``data`` overlaid with ``old``. A column that is missing
from ``data`` is unchanged, unless the options state that rows are whole or that NULL is omitted; it
is NULL if ``old`` has it. Messages carry no types: numbers are exact, other values text.

Known gaps: encrypted messages are not read, rows of a bootstrap have no position, and statements
are written only if they came from Maxwell. See ``docs/formats/maxwell-json.md``.
"""

from typing import Final

from changelane.errors import ConfigError, DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import JSON_TYPES, AbsentMeans, Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.maxwell.decode import SOURCE, Reader
from changelane.formats.maxwell.encode import Writer
from changelane.formats.maxwell.lanes import lanes_of
from changelane.formats.maxwell.message_types import ACTIONS, BOOTSTRAP_MARKS, OPERATIONS
from changelane.formats.maxwell.options import Nulls, Options, RowImage
from changelane.formats.maxwell.wire import DdlMap, load
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Bits,
    Boolean,
    Decimal,
    Float,
    InstantType,
    Json,
    LogicalType,
    Set,
    Timestamp,
    Year,
)
from changelane.types.scalars import parse_zone

__all__ = ["Options", "make"]

_TYPES: Final = JSON_TYPES - {Boolean, Json, Set} | {Year}
_FORMS: Final[dict[type[LogicalType], str]] = {
    Boolean: "tinyint",
    Bits: "bit_number",
    Decimal: "number",
    Float: "number",
    Json: "document",
    Set: "labels",
    Timestamp: "sql",
}


class Maxwell:
    """The format ``maxwell-json``."""

    def __init__(self, options: Options) -> None:
        if options.nulls is Nulls.DROPPED and options.row_image is RowImage.MINIMAL:
            raise ConfigError(
                "maxwell-json: with nulls: dropped and row_image: minimal, a missing column is "
                "NULL or unchanged, which cannot be known; let Maxwell write NULL (output_nulls)"
            )
        parse_zone(options.time_zone)
        self._options = options
        self.carries: Final = _carries(options)
        self._read = Reader(options)
        self.lanes: Final = lanes_of(self._read)
        self._write = Writer(options)

    def __reduce__(self) -> tuple[object, ...]:
        return (Maxwell, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one event."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message, message.value),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like Maxwell's."""
        if message.value is None:
            return False
        try:
            wire, _ = load(message.value)
        except DecodeError:
            return False
        if isinstance(wire, DdlMap):
            return wire.type in ACTIONS and wire.database is not None
        if isinstance(wire.encrypted, dict):
            return wire.encrypted.keys() == {"iv", "bytes"}
        if wire.database is None or wire.table is None or wire.data is None:
            return False
        is_dead_letter = wire.reason is not None and wire.ts is None
        return is_dead_letter or wire.type in OPERATIONS or wire.type in BOOTSTRAP_MARKS


def _carries(options: Options) -> Carries:
    is_null = options.nulls is Nulls.DROPPED or options.row_image is RowImage.FULL
    forms = _FORMS | {InstantType: f"sql@{options.time_zone}"}
    return Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "control"}),
        before=True,
        absent=not is_null,
        partial_after=options.row_image is RowImage.MINIMAL,
        absent_means=AbsentMeans.NULL if is_null else AbsentMeans.UNCHANGED,
        types=_TYPES,
        forms=frozenset(forms.items()),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"mysql"}),
        shared_positions=frozenset({"mysql"}),  # the rows of one event of the binary log
        transaction=frozenset({"id", "order", "last"}),
        stamp=SOURCE,
        source_time="s",
        process_time="us",
        details=True,
    )


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: Two options contradict each other, or the zone is unknown.
    """
    return Maxwell(options)
