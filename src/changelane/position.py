# SPDX-License-Identifier: Apache-2.0
"""Positions of changes in their source's log, and the byte order that compares them.

``order = version | domain | epoch | stage | position | phase`` in fixed-width big-endian bytes,
compared as unsigned bytes (docs/merge-rule.md, Orders). Positions of different domains never mix in
one table. Snapshot rows (stage 0) sort below the stream (stage 1) of their epoch. Clock times are
never an order, with one exception: :class:`TimePosition`.
"""

import datetime as dt
import struct
import zlib
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from changelane.errors import UnorderedError

ORDER_VERSION: Final = 1
DEPARTURE: Final = 0
"""Phase of a delete, of the departure of a key and of a truncate."""
ARRIVAL: Final = 1
"""Phase of an upsert and of the arrival of a key."""


class Names(StrEnum):
    """What a position is the name of, in the events that a producer sends.

    It decides how an event is known that a producer sends again, as it does after it was killed.
    """

    EVENT = "event"
    """One event, a row of a snapshot, too."""
    ROW = "row"
    """One change of a row: whatever comes again at it is the same change."""
    GROUP = "group"
    """A statement, a transaction or a record of the log, which may change several rows: the
    change's number in its transaction tells them apart, where the producer counts."""
    MESSAGE = "message"
    """The message: an event that is sent again has another one."""


_U32: Final = (1 << 32) - 1
_U64: Final = (1 << 64) - 1
_BIAS_128: Final = 1 << 127
_ROW_KEY: Final = struct.Struct(">QQI")


def _unsigned(value: int, bits: int, what: str) -> int:
    if not 0 <= value < (1 << bits):
        msg = f"{what} does not fit {bits} bits"
        raise UnorderedError(msg)
    return value


class MySqlPosition(
    msgspec.Struct, frozen=True, tag="mysql", tag_field="domain", omit_defaults=True
):
    """A row in a MySQL or MariaDB binary log: file, position of the event, row inside it (B-07).

    A GTID is carried and never compared: GTIDs of one set have no order as text.
    """

    code: ClassVar[int] = 1
    names: ClassVar[Names] = Names.ROW
    file: str
    pos: int
    row: int = 0
    gtid: str | None = None

    def key(self) -> bytes:
        """Return the order-preserving form; files compare by their numeric suffix."""
        suffix = self.file.rpartition(".")[2]
        if not (suffix.isascii() and suffix.isdigit()):
            msg = "a binary log file without a numeric suffix has no order"
            raise UnorderedError(msg)
        return struct.pack(
            ">QQI",
            _unsigned(int(suffix[-20:]), 64, "the binary log file number"),
            _unsigned(self.pos, 64, "the binary log position"),
            _unsigned(self.row, 32, "the row"),
        )


class PostgresPosition(
    msgspec.Struct, frozen=True, tag="postgresql", tag_field="domain", omit_defaults=True
):
    """A change in PostgreSQL's log as Debezium tells it.

    The commit LSN is not sent; ``sequence[0]``, the last commit before the event, orders
    transactions, and the event's own LSN orders inside one. Rows of one COPY, or of one INSERT,
    may stand in one record of the log, and have its LSN.
    """

    code: ClassVar[int] = 2
    names: ClassVar[Names] = Names.GROUP
    lsn: int
    last_commit_lsn: int | None = None
    row: int = 0

    def key(self) -> bytes:
        """Return the order-preserving form; an LSN printed as a signed number is unsigned."""
        row = self.row and _unsigned(self.row, 32, "the row")
        return _ROW_KEY.pack((self.last_commit_lsn or 0) & _U64, self.lsn & _U64, row)


class ScnPosition(msgspec.Struct, frozen=True, tag="scn", tag_field="domain", omit_defaults=True):
    """A change in Oracle's redo log: commit SCN, SCN, record set, statement number (B-07)."""

    code: ClassVar[int] = 3
    scn: int
    commit_scn: int | None = None
    rs_id: str | None = None
    ssn: int = 0
    tx_seq: int = 0

    @property
    def names(self) -> Names:
        """What it is the name of: an SCN alone is that of a transaction.

        "The tuple (RS_ID, SSN) together uniquely identifies a row in V$LOGMNR_CONTENTS" (Oracle's
        Database Reference); ``tx_seq`` counts the changes of a transaction.
        """
        return Names.ROW if self.rs_id or self.tx_seq else Names.GROUP

    def key(self) -> bytes:
        """Return the order-preserving form; SCNs take 16 bytes."""
        commit = self.scn if self.commit_scn is None else self.commit_scn
        segments = [0, 0, 0]
        if self.rs_id:
            for index, part in enumerate(self.rs_id.strip().split(".")[:3]):
                try:
                    segments[index] = int(part, 16)
                except ValueError:
                    msg = "rs_id is not made of hexadecimal segments"
                    raise UnorderedError(msg) from None
        return (
            _unsigned(commit, 128, "commit_scn").to_bytes(16, "big")
            + _unsigned(self.scn, 128, "scn").to_bytes(16, "big")
            + struct.pack(
                ">QQQQQ",
                *(_unsigned(part, 64, "rs_id") for part in segments),
                _unsigned(self.ssn, 64, "ssn"),
                _unsigned(self.tx_seq, 64, "txSeq"),
            )
        )


class LsnPosition(msgspec.Struct, frozen=True, tag="lsn", tag_field="domain", omit_defaults=True):
    """A change in SQL Server's or Db2's change tables: LSNs as ``:``-separated hex (B-07)."""

    code: ClassVar[int] = 4
    commit_lsn: str
    change_lsn: str | None = None
    event_serial_no: int | None = None

    @property
    def names(self) -> Names:
        """What it is the name of: a commit's LSN alone is that of a transaction."""
        is_row = bool(self.change_lsn) and self.event_serial_no is not None
        return Names.ROW if is_row else Names.GROUP

    def key(self) -> bytes:
        """Return the order-preserving form; hexadecimal segments compare as numbers."""
        return (
            _hex_segments(self.commit_lsn)
            + _hex_segments(self.change_lsn or "")
            + struct.pack(">Q", _unsigned(self.event_serial_no or 0, 64, "event_serial_no"))
        )


def _hex_segments(text: str) -> bytes:
    parts = text.split(":") if text else []
    try:
        numbers = [int(part, 16) for part in parts]
    except ValueError:
        msg = "an LSN is not made of hexadecimal segments"
        raise UnorderedError(msg) from None
    numbers = [0] * (3 - len(numbers)) + numbers
    if len(numbers) > 3:
        msg = "an LSN has more than three segments"
        raise UnorderedError(msg)
    return struct.pack(">QQQ", *(_unsigned(number, 64, "an LSN segment") for number in numbers))


class SequencePosition(
    msgspec.Struct, frozen=True, tag="sequence", tag_field="domain", omit_defaults=True
):
    """A whole number that the producer or a column of the user's choice counts up.

    A format whose numbers are those of transactions says so (``Carries.shared_positions``).
    """

    code: ClassVar[int] = 5
    names: ClassVar[Names] = Names.ROW
    value: int
    row: int = 0

    @classmethod
    def of(cls, value: object, row: int = 0) -> "SequencePosition":
        """Make a position of a sortable column's value.

        Raises:
            UnorderedError: NULL, or a kind of value that has no fixed-width order.
        """
        match value:
            case bool():
                pass
            case int():
                return cls(value, row)
            case dt.datetime():
                zone = None if value.tzinfo is None else dt.UTC
                span = value - dt.datetime(1970, 1, 1, tzinfo=zone)
                return cls(span // dt.timedelta(microseconds=1), row)
            case dt.date():
                return cls(value.toordinal(), row)
            case float() if value == value:  # noqa: PLR0124 - NaN is the value unequal to itself
                bits = int.from_bytes(struct.pack(">d", value + 0.0), "big")
                return cls(-(bits & (_U64 >> 1)) if bits >> 63 else bits, row)
        msg = "the sequence column is NULL or not a sortable value"
        raise UnorderedError(msg)

    def key(self) -> bytes:
        """Return the order-preserving form: 128 signed bits."""
        biased = _unsigned(self.value + _BIAS_128, 128, "the sequence")
        return biased.to_bytes(16, "big") + struct.pack(">I", _unsigned(self.row, 32, "the row"))


class OffsetPosition(
    msgspec.Struct, frozen=True, tag="offset", tag_field="domain", omit_defaults=True
):
    """A place in one partition of a topic (or in one file); comparable inside it only.

    The key ends in a tag of topic and partition, so that orders of two partitions are told apart
    (:func:`comparable`).
    """

    code: ClassVar[int] = 6
    names: ClassVar[Names] = Names.MESSAGE
    topic: str
    partition: int
    offset: int
    row: int = 0

    def key(self) -> bytes:
        """Return offset and row, then the tag of the partition."""
        return struct.pack(
            ">QIII",
            _unsigned(self.offset, 64, "the offset"),
            _unsigned(self.row, 32, "the row"),
            zlib.crc32(self.topic.encode("utf-8", "surrogatepass")),
            _unsigned(self.partition, 32, "the partition"),
        )


class EventIdPosition(OffsetPosition, frozen=True):
    """The place of the message that an event was made of, when changelane delivered it.

    The same event has the same one however often it was sent, where its own offsets are others. No
    event tells it: tables compare it on request.
    """

    code: ClassVar[int] = 9  # 8 are several columns that order plain rows (spark.rows.sequence_by)
    names: ClassVar[Names] = Names.EVENT


class TimePosition(msgspec.Struct, frozen=True, tag="time", tag_field="domain", omit_defaults=True):
    """The time of a change at its source, ties by the message's offset.

    The one exception to "clock times are no order" (docs/merge-rule.md, Orders), for producers that
    tell nothing else (Lindorm), where the user or the format's page chooses it.

    Attributes:
        time_ms: Milliseconds since 1970-01-01 UTC.
        offset: The message's place in its partition; all changes of a key come through one.
    """

    code: ClassVar[int] = 7
    names: ClassVar[Names] = Names.MESSAGE
    time_ms: int
    offset: int
    row: int = 0

    def key(self) -> bytes:
        """Return the order-preserving form: the time as 64 signed bits, offset and row."""
        return struct.pack(
            ">QQI",
            _unsigned(self.time_ms + (1 << 63), 64, "the time"),
            _unsigned(self.offset, 64, "the offset"),
            _unsigned(self.row, 32, "the row"),
        )


Position = (
    MySqlPosition
    | PostgresPosition
    | ScnPosition
    | LsnPosition
    | SequencePosition
    | OffsetPosition
    | TimePosition
)

BY_PARTITION: Final = frozenset({OffsetPosition.code, EventIdPosition.code})
"""Codes of positions that are compared inside one partition only."""

_OF_MESSAGES: Final = (OffsetPosition, TimePosition)
BY_MESSAGE: Final = frozenset(one.code for one in _OF_MESSAGES)
"""Codes of positions that tell of no event that it was sent again (:attr:`Names.MESSAGE`)."""
MESSAGE_DOMAINS: Final = frozenset(str(one.__struct_config__.tag) for one in _OF_MESSAGES)
"""Their domains."""

_HEADER: Final = struct.Struct(">BBIB")


@lru_cache(maxsize=256)
def _header(code: int, epoch: int, snapshot: bool) -> bytes:  # noqa: FBT001 - as it is cached
    stage = 0 if snapshot else 1
    return _HEADER.pack(ORDER_VERSION, code, _unsigned(epoch, 32, "the epoch"), stage)


def encode_order(
    position: Position, *, epoch: int = 0, snapshot: bool = False, phase: int = ARRIVAL
) -> bytes:
    """Return the order of an event as bytes that compare like the events do.

    Args:
        position: Where the event stands in its source.
        epoch: Raised when the source's history changes (docs/merge-rule.md, Orders).
        snapshot: The event is a row of the epoch's first snapshot and sorts below its stream.
        phase: :data:`DEPARTURE` or :data:`ARRIVAL`.

    Raises:
        UnorderedError: A coordinate is malformed or out of range.
    """
    return (
        _header(position.code, epoch, snapshot) + position.key() + (b"\x01" if phase else b"\x00")
    )


def shown_order(order: bytes) -> str:
    """Return what an order says, for people; a file of MySQL's by its number.

    >>> shown_order(encode_order(MySqlPosition("binlog.000003", 4711)))
    'binary log 3, position 4711'
    """
    if len(order) < _HEADER.size + 1:
        return "none"
    _, code, epoch, stage = _HEADER.unpack_from(order)
    words = [_shown(code, order[_HEADER.size : -1])]
    if stage == 0:
        words.append("snapshot")
    if epoch:
        words.append(f"epoch {epoch}")
    return ", ".join(words)


def _shown(code: int, key: bytes) -> str:
    match code:
        case MySqlPosition.code:
            file, pos, row = struct.unpack_from(">QQI", key)
            return f"binary log {file}, position {pos}" + (f", row {row}" if row else "")
        case PostgresPosition.code:
            commit, lsn, _ = struct.unpack_from(">QQI", key)
            return (
                f"LSN {lsn >> 32:X}/{lsn & _U32:X} after commit {commit >> 32:X}/{commit & _U32:X}"
            )
        case ScnPosition.code:
            commit, scn = int.from_bytes(key[:16], "big"), int.from_bytes(key[16:32], "big")
            return f"commit SCN {commit}, SCN {scn}"
        case SequencePosition.code:
            value = int.from_bytes(key[:16], "big") - _BIAS_128
            (row,) = struct.unpack_from(">I", key, 16)
            return f"sequence {value}" + (f", row {row}" if row else "")
        case OffsetPosition.code | EventIdPosition.code:
            offset, row, _, partition = struct.unpack_from(">QIII", key)
            place = f"offset {offset} of partition {partition}"
            if code == EventIdPosition.code:
                return f"event {row >> 16} of {place}"
            return place + (f", row {row}" if row else "")
        case _:
            return f"position {key.hex()}"


def _lsn(number: int) -> str:
    """Return an LSN as PostgreSQL prints it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def domain_of(order: bytes) -> int:
    """Return the code of the domain that an order belongs to."""
    return order[1]


def epoch_of(order: bytes) -> int:
    """Return the epoch of an order."""
    return int.from_bytes(order[2:6], "big")


def is_of_stream(order: bytes) -> bool:
    """Say whether an order is of the stream, and not of a row of the epoch's first snapshot."""
    return order[_HEADER.size - 1] != 0


def phase_of(order: bytes) -> int:
    """Return the phase of an order."""
    return order[-1]


def at_phase(order: bytes, phase: int) -> bytes:
    """Return the order of the same event at another phase."""
    return order[:-1] + (b"\x01" if phase else b"\x00")


def comparable(one: bytes, other: bytes) -> bool:
    """Say whether two orders may be compared: same version and domain, and one partition."""
    if one[:2] != other[:2]:
        return False
    if one[1] not in BY_PARTITION:
        return True
    return one[2:6] != other[2:6] or one[-9:-1] == other[-9:-1]
