# SPDX-License-Identifier: Apache-2.0
"""The records of Debezium's engine, and their roles in the publication of a capture log.

The topic tells the role of a record, and the offset tells whether a transaction or a snapshot is
open at it (``TransactionContext`` and ``CommonOffsetContext`` of Debezium).
"""

import base64
import binascii
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from changelane.capture.connectors import (
    HEARTBEAT_CONTENT,
    HEARTBEAT_TOPIC_PREFIX,
    ConnectorOptions,
)
from changelane.capture.engine_offset import is_in_snapshot
from changelane.capture.manifest import CapturedRecord, EngineOffset
from changelane.capture.postgres.replication import MARKER_PREFIX
from changelane.errors import ChangelaneError

_TRANSACTION_ID: Final = "transaction_id"
_TRANSACTION_FIELDS: Final = "transaction_"
"""The prefix of the fields of an offset that describe its open transaction."""

_TRUNCATE: Final = '"op":"t"'
"""Occurs in a truncate, but also in a row whose column ``op`` has the value ``t``."""


class RecordRole(Enum):
    """The role of a record of the engine.

    ``ROW``: anything that consumers read: rows, tombstones, truncates, messages of other programs.
    ``STATEMENT``: a statement or a truncate of MySQL or MariaDB. It commits by itself, but with
    GTIDs Debezium begins a transaction for it that never ends. ``HEARTBEAT``: a heartbeat, or the
    message that a heartbeat wrote. ``MARKER``: a message of ours, behind which somebody waits for
    the log.
    """

    ROW = "row"
    STATEMENT = "statement"
    BEGIN = "begin"
    END = "end"
    HEARTBEAT = "heartbeat"
    MARKER = "marker"


class EngineRecord(msgspec.Struct, frozen=True):
    """A record of the engine.

    Attributes:
        role: Its role.
        offset: The engine's position after the record.
        record: Its content.
    """

    role: RecordRole
    offset: EngineOffset
    record: CapturedRecord

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open at its offset."""
        return _TRANSACTION_ID in self.offset

    @property
    def is_in_snapshot(self) -> bool:
        """Whether a snapshot is running at its offset, which could not continue from there."""
        return is_in_snapshot(self.offset)

    @property
    def is_closed(self) -> bool:
        """Whether neither a transaction nor a snapshot is open at its offset."""
        is_in_transaction = self.is_in_transaction and self.role is not RecordRole.STATEMENT
        return not is_in_transaction and not self.is_in_snapshot

    @property
    def may_end_late(self) -> bool:
        """Whether its connector may notice the end of a transaction by the next one: SQL Server.

        The offset of such an END is that of the first row of the next transaction, which follows.
        """
        return "commit_lsn" in self.offset

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record in a segment, before compression."""
        key, value = self.record.key, self.record.value
        return len(self.record.topic) + len(key or "") + len(value or "") + 100


def closed_offset(offset: Mapping[str, str | int | bool | None]) -> EngineOffset:
    """Return an offset after the end of its transaction.

    Debezium's END still has the fields of the transaction that it ends: with them a restarted
    engine would take it for open.
    """
    return {
        name: value for name, value in offset.items() if not name.startswith(_TRANSACTION_FIELDS)
    }


class RecordRoles:
    """Finds the roles of the records of one connector.

    Args:
        options: The captured database.
    """

    def __init__(self, options: ConnectorOptions) -> None:
        self._heartbeat = f"{HEARTBEAT_TOPIC_PREFIX}.{options.name}"
        self._transaction = f"{options.name}.transaction"
        self._message = f"{options.name}.message"
        self._statement = options.name
        self._is_postgres = options.product == "postgres"

    def role_of(self, topic: str, value: str | None) -> RecordRole:
        """Return the role of a record.

        Raises:
            ChangelaneError: A transaction marker has an unknown status.
        """
        if topic == self._heartbeat:
            return RecordRole.HEARTBEAT
        if value is None:
            return RecordRole.ROW
        if topic == self._transaction:
            return _marker_role(value)
        if self._is_postgres:
            return _message_role(value) if topic == self._message else RecordRole.ROW
        is_statement = topic == self._statement or _is_truncate(value)
        return RecordRole.STATEMENT if is_statement else RecordRole.ROW


class _Marker(msgspec.Struct):
    status: str


class _Message(msgspec.Struct):
    prefix: str | None = None
    content: str | None = None


class _MessageValue(msgspec.Struct):
    op: str
    message: _Message


class _Operation(msgspec.Struct):
    op: str | None = None


class _OperationEnvelope(msgspec.Struct):
    payload: _Operation


class _MarkerEnvelope(msgspec.Struct):
    payload: _Marker


class _MessageEnvelope(msgspec.Struct):
    payload: _MessageValue


_MARKERS: Final = msgspec.json.Decoder(_MarkerEnvelope)
_OPERATIONS: Final = msgspec.json.Decoder(_OperationEnvelope)
_MESSAGES: Final = msgspec.json.Decoder(_MessageEnvelope)


def _marker_role(value: str) -> RecordRole:
    try:
        status = _MARKERS.decode(value).payload.status
    except msgspec.DecodeError:
        return RecordRole.ROW  # a table may have the name of the topic
    if status == "BEGIN":
        return RecordRole.BEGIN
    if status == "END":
        return RecordRole.END
    raise ChangelaneError("Debezium's engine sent a transaction marker of an unknown status")


def _is_truncate(value: str) -> bool:
    return _TRUNCATE in value and _OPERATIONS.decode(value).payload.op == "t"


def _message_role(value: str) -> RecordRole:
    try:
        envelope = _MESSAGES.decode(value).payload
    except msgspec.DecodeError:
        return RecordRole.ROW  # a table may have the name of the topic
    if envelope.op != "m" or envelope.message.prefix != MARKER_PREFIX:
        return RecordRole.ROW
    try:
        content = base64.b64decode(envelope.message.content or "", validate=True)
    except binascii.Error:
        return RecordRole.MARKER
    is_heartbeat = content == HEARTBEAT_CONTENT.encode()
    return RecordRole.HEARTBEAT if is_heartbeat else RecordRole.MARKER
