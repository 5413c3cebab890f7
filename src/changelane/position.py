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
DELETE_PHASE: Final = 0
"""Phase of a delete, of the delete half of a key change, and of a truncate."""
UPSERT_PHASE: Final = 1
"""Phase of an upsert and of the insert half of a key change."""


class PositionScope(StrEnum):
    """The unit that a position identifies in the events of a producer.

    The scope decides how to recognise an event that a producer sends again after a restart.
    """

    EVENT = "event"
    """One event, including a row of a snapshot."""
    ROW = "row"
    """One change of a row: another event at the same position is the same change."""
    GROUP = "group"
    """A statement, a transaction or a record of the log, which may change several rows. If the
    producer counts, the change's number in its transaction separates them.
    """
    MESSAGE = "message"
    """The message: an event that is sent again gets another position."""


_U32: Final = (1 << 32) - 1
_U64: Final = (1 << 64) - 1
_BIAS_128: Final = 1 << 127
_ROW_KEY: Final = struct.Struct(">QQI")


def _unsigned(value: int, bits: int, noun: str) -> int:
    if not 0 <= value < (1 << bits):
        msg = f"{noun} does not fit {bits} bits"
        raise UnorderedError(msg)
    return value


class MySqlPosition(
    msgspec.Struct, frozen=True, tag="mysql", tag_field="domain", omit_defaults=True
):
    """A row in a MySQL or MariaDB binary log: file, position of the event, row inside the event.

    A GTID is never compared: the GTIDs of one set have no order as text.
    """

    code: ClassVar[int] = 1
    scope: ClassVar[PositionScope] = PositionScope.ROW
    file: str
    pos: int
    row: int = 0
    gtid: str | None = None

    def key(self) -> bytes:
        """Return the order-preserving bytes; files compare by their numeric suffix."""
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
    """A change in PostgreSQL's log, in Debezium's coordinates.

    Debezium does not send the commit LSN. ``sequence[0]``, the last commit before the event, orders
    transactions; the event's own LSN orders the changes inside a transaction. Rows of one COPY or
    one INSERT can be in one record of the log and have its LSN.
    """

    code: ClassVar[int] = 2
    scope: ClassVar[PositionScope] = PositionScope.GROUP
    lsn: int
    last_commit_lsn: int | None = None
    row: int = 0

    def key(self) -> bytes:
        """Return the order-preserving bytes; a negative LSN is read as its unsigned 64 bits."""
        row = self.row and _unsigned(self.row, 32, "the row")
        return _ROW_KEY.pack((self.last_commit_lsn or 0) & _U64, self.lsn & _U64, row)


class ScnPosition(msgspec.Struct, frozen=True, tag="scn", tag_field="domain", omit_defaults=True):
    """A change in Oracle's redo log: commit SCN, SCN, record set, statement number."""

    code: ClassVar[int] = 3
    scn: int
    commit_scn: int | None = None
    rs_id: str | None = None
    ssn: int = 0
    tx_seq: int = 0

    @property
    def scope(self) -> PositionScope:
        """An SCN alone identifies a transaction; with ``rs_id`` or ``tx_seq``, a row.

        "The tuple (RS_ID, SSN) together uniquely identifies a row in V$LOGMNR_CONTENTS" (Oracle's
        Database Reference); ``tx_seq`` counts the changes of a transaction.
        """
        return PositionScope.ROW if self.rs_id or self.tx_seq else PositionScope.GROUP

    def key(self) -> bytes:
        """Return the order-preserving bytes; SCNs take 16 bytes."""
        commit = self.scn if self.commit_scn is None else self.commit_scn
        segments = [0, 0, 0]
        if self.rs_id:
            for index, part in enumerate(self.rs_id.strip().split(".")[:3]):
                try:
                    segments[index] = int(part, 16)
                except ValueError:
                    msg = "rs_id does not consist of hexadecimal segments"
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
    """A change in SQL Server's or Db2's change tables: LSNs as ``:``-separated hex."""

    code: ClassVar[int] = 4
    commit_lsn: str
    change_lsn: str | None = None
    event_serial_no: int | None = None

    @property
    def scope(self) -> PositionScope:
        """A commit LSN alone identifies a transaction; with LSN and serial number, a row."""
        is_row = bool(self.change_lsn) and self.event_serial_no is not None
        return PositionScope.ROW if is_row else PositionScope.GROUP

    def key(self) -> bytes:
        """Return the order-preserving bytes; hexadecimal segments compare as numbers."""
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
        msg = "an LSN does not consist of hexadecimal segments"
        raise UnorderedError(msg) from None
    numbers = [0] * (3 - len(numbers)) + numbers
    if len(numbers) > 3:
        msg = "an LSN has more than three segments"
        raise UnorderedError(msg)
    return struct.pack(">QQQ", *(_unsigned(number, 64, "an LSN segment") for number in numbers))


class SequencePosition(
    msgspec.Struct, frozen=True, tag="sequence", tag_field="domain", omit_defaults=True
):
    """A number that the producer increments, or the value of a column that the user chose.

    If the numbers of a format identify transactions, ``Carries.shared_positions`` declares that.
    """

    code: ClassVar[int] = 5
    scope: ClassVar[PositionScope] = PositionScope.ROW
    value: int
    row: int = 0

    @classmethod
    def of(cls, value: object, row: int = 0) -> "SequencePosition":
        """Return the position of a sortable column's value.

        Raises:
            UnorderedError: The value is NULL, or its type has no fixed-width order.
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
        msg = "the value of the sequence column is NULL or has a type without order"
        raise UnorderedError(msg)

    def key(self) -> bytes:
        """Return the order-preserving bytes: 128 signed bits."""
        biased = _unsigned(self.value + _BIAS_128, 128, "the sequence")
        return biased.to_bytes(16, "big") + struct.pack(">I", _unsigned(self.row, 32, "the row"))


class OffsetPosition(
    msgspec.Struct, frozen=True, tag="offset", tag_field="domain", omit_defaults=True
):
    """An offset in one partition of a topic (or in one file); comparable only inside it.

    The key ends in a tag of topic and partition. By the tag, :func:`is_comparable` separates the
    orders of two partitions.
    """

    code: ClassVar[int] = 6
    scope: ClassVar[PositionScope] = PositionScope.MESSAGE
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
    """The offset of the original message of an event that changelane delivered.

    All deliveries of an event have the same position, while their own offsets differ. Decoded
    events do not contain it: a table orders by it if the option `order_by_event_id` is set.
    """

    code: ClassVar[int] = 9  # 8 is the code of several sequence columns (spark.rows.sequence_by)
    scope: ClassVar[PositionScope] = PositionScope.EVENT


class TimePosition(msgspec.Struct, frozen=True, tag="time", tag_field="domain", omit_defaults=True):
    """The time of a change at its source; the message's offset orders equal times.

    The one exception to "a clock time is no order" (docs/merge-rule.md, Orders): for producers that
    send no other position (Lindorm), if an option selects it.

    Attributes:
        time_ms: Milliseconds since 1970-01-01 UTC.
        offset: The message's offset in its partition; all changes of a key are in one partition.
    """

    code: ClassVar[int] = 7
    scope: ClassVar[PositionScope] = PositionScope.MESSAGE
    time_ms: int
    offset: int
    row: int = 0

    def key(self) -> bytes:
        """Return the order-preserving bytes: the time as 64 signed bits, offset and row."""
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
"""Codes of positions that are comparable only inside one partition."""

_OF_MESSAGES: Final = (OffsetPosition, TimePosition)
BY_MESSAGE: Final = frozenset(position.code for position in _OF_MESSAGES)
"""Codes of positions that do not identify repeated events (:attr:`PositionScope.MESSAGE`)."""
MESSAGE_DOMAINS: Final = frozenset(str(position.__struct_config__.tag) for position in _OF_MESSAGES)
"""The domains of the codes in ``BY_MESSAGE``."""

CAPTURE_LOG: Final = 0x80
"""The bit of the domain of orders from a capture log.

The same change has the same position in a topic of Debezium and in a capture log, but other rows
of a first load precede it, and the last commit that Debezium knew depends on where it began. So
orders of both are never compared. A new rule for the orders of capture logs gets another bit.
"""
_LOG_POSITIONS: Final = (MySqlPosition, PostgresPosition, ScnPosition, LsnPosition)
"""The positions of capture logs; others there are those of messages."""

_HEADER: Final = struct.Struct(">BBIB")


def domain_of_class(
    position_class: type[Position],
    captured: bool,  # noqa: FBT001 - as its caller, which is called for each row
) -> int:
    """Return the domain of orders by positions of a class, from a capture log or not."""
    is_other_domain = captured and position_class in _LOG_POSITIONS
    return position_class.code | CAPTURE_LOG if is_other_domain else position_class.code


@lru_cache(maxsize=256)
def order_header(domain: int, epoch: int, snapshot: bool) -> bytes:  # noqa: FBT001 - as it is cached
    """Return the part of orders before the position."""
    stage = 0 if snapshot else 1
    return _HEADER.pack(ORDER_VERSION, domain, _unsigned(epoch, 32, "the epoch"), stage)


def encode_order(
    position: Position,
    *,
    epoch: int = 0,
    snapshot: bool = False,
    phase: int = UPSERT_PHASE,
    captured: bool = False,
) -> bytes:
    """Return the order of an event as bytes that sort like the source's history.

    Args:
        position: The event's position in its source.
        epoch: The number of the source's history (docs/merge-rule.md, Orders).
        snapshot: The event is a row of the epoch's first snapshot and sorts below its stream.
        phase: :data:`DELETE_PHASE` or :data:`UPSERT_PHASE`.
        captured: The event is from a capture log (:data:`CAPTURE_LOG`).

    Raises:
        UnorderedError: A coordinate is malformed or out of range.
    """
    return (
        order_header(domain_of_class(type(position), captured), epoch, snapshot)
        + position.key()
        + (b"\x01" if phase else b"\x00")
    )


OFFSET_ORDER_BYTES: Final = len(encode_order(OffsetPosition("", 0, 0)))
"""The length of the order of an offset."""


def order_text(order: bytes) -> str:
    """Return an order as readable text; a MySQL binary log file appears as its number.

    >>> order_text(encode_order(MySqlPosition("binlog.000003", 4711)))
    'binary log 3, position 4711'
    >>> order_text(encode_order(LsnPosition("25:d98:a2", "25:d98:1", 1)))
    'commit LSN 00000025:00000d98:00a2, LSN 00000025:00000d98:0001, event 1'
    """
    if len(order) < _HEADER.size + 1:
        return "none"
    _, domain, epoch, stage = _HEADER.unpack_from(order)
    words = [_position_text(domain & ~CAPTURE_LOG, order[_HEADER.size : -1])]
    if stage == 0:
        words.append("snapshot")
    if epoch:
        words.append(f"epoch {epoch}")
    return ", ".join(words)


def _position_text(code: int, key: bytes) -> str:
    match code:
        case MySqlPosition.code:
            file, pos, row = struct.unpack_from(">QQI", key)
            return f"binary log {file}, position {pos}" + (f", row {row}" if row else "")
        case PostgresPosition.code:
            commit, lsn, _ = struct.unpack_from(">QQI", key)
            return f"LSN {_lsn_text(lsn)} after commit {_lsn_text(commit)}"
        case ScnPosition.code:
            commit, scn = int.from_bytes(key[:16], "big"), int.from_bytes(key[16:32], "big")
            return f"commit SCN {commit}, SCN {scn}"
        case LsnPosition.code:
            *segments, serial = struct.unpack_from(">QQQQQQQ", key)
            commit_lsn, change_lsn = (
                "{:08x}:{:08x}:{:04x}".format(*segments[start : start + 3]) for start in (0, 3)
            )
            return f"commit LSN {commit_lsn}, LSN {change_lsn}, event {serial}"
        case SequencePosition.code:
            value = int.from_bytes(key[:16], "big") - _BIAS_128
            (row,) = struct.unpack_from(">I", key, 16)
            return f"sequence {value}" + (f", row {row}" if row else "")
        case OffsetPosition.code | EventIdPosition.code:
            offset, row, _, partition = struct.unpack_from(">QIII", key)
            offset_text = f"offset {offset} of partition {partition}"
            if code == EventIdPosition.code:
                return f"event {row >> 16} of {offset_text}"
            return offset_text + (f", row {row}" if row else "")
        case _:
            return f"position {key.hex()}"


def _lsn_text(number: int) -> str:
    """Return an LSN as PostgreSQL prints it."""
    return f"{number >> 32:X}/{number & _U32:X}"


def domain_of(order: bytes) -> int:
    """Return the code of the positions of an order, whether or not it is from a capture log."""
    return order[1] & ~CAPTURE_LOG


_DOMAINS: Final = {
    MySqlPosition.code: "positions in MySQL's binary log",
    PostgresPosition.code: "PostgreSQL's LSNs",
    ScnPosition.code: "Oracle's SCNs",
    LsnPosition.code: "LSNs",
    SequencePosition.code: "numbers of a sequence",
    OffsetPosition.code: "offsets within one partition or file",
    EventIdPosition.code: "ids of events, which contain offsets within one partition",
    TimePosition.code: "times at the source",
}


def domain_text(order: bytes) -> str:
    """Return the kind of the positions of an order as text."""
    text = _DOMAINS.get(domain_of(order), "values of several columns")
    return f"{text} in a capture log" if order[1] & CAPTURE_LOG else text


def epoch_of(order: bytes) -> int:
    """Return the epoch of an order."""
    return int.from_bytes(order[2:6], "big")


def is_of_stream(order: bytes) -> bool:
    """Whether an order belongs to the stream, not to a row of the epoch's first snapshot."""
    return order[_HEADER.size - 1] != 0


def phase_of(order: bytes) -> int:
    """Return the phase of an order."""
    return order[-1]


def at_phase(order: bytes, phase: int) -> bytes:
    """Return the order of the same event at another phase."""
    return order[:-1] + (b"\x01" if phase else b"\x00")


def is_comparable(first: bytes, second: bytes) -> bool:
    """Whether two orders are comparable: of the same version, domain and, if needed, partition."""
    if first[:2] != second[:2]:
        return False
    if first[1] not in BY_PARTITION:
        return True
    return first[2:6] != second[2:6] or first[-9:-1] == second[-9:-1]
