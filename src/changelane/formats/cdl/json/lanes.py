# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``cdl-json`` (:mod:`changelane.formats.contract.lane`).

A plain message has the product, the owner, the table and the key columns of the lane, no columns in
``LOB_COLUMNS``, and images with all columns, none with the placeholder of unavailable values. An
update does not change the key.
"""

import decimal
from collections.abc import Hashable
from typing import Any, Final, Literal

import msgspec

from changelane.event import DataChange
from changelane.formats.cdl.json.decode import Decoder, coordinates
from changelane.formats.cdl.json.options import FILLERS, OPERATIONS, VERSION
from changelane.formats.cdl.json.wire import Envelope, TransactionBlock
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    ReadChange,
    compiled_function,
    literal,
)
from changelane.formats.debezium_envelope.other_events import MILLISECOND
from changelane.formats.debezium_envelope.plain_rows import (
    Kinds,
    PlainImages,
    class_of,
    decode_statements,
    lane_columns,
    message_parts,
    payload_of,
)
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS, row_type
from changelane.message import Message


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    DATA_STORE: str | None = None
    SEG_OWNER: str | None = None
    TABLE_NAME: str | None = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


class CdlLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def identity(self, value: bytes) -> Hashable | None:
        """Return the plan of a message's schema block, its product and its table."""
        try:
            plan, payload, _ = payload_of(value, self._decoder.plain, self._decoder.blocks)
            return plan, msgspec.structs.astuple(_probe(payload))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def open(self, message: Message, change: DataChange) -> "CdlLane":
        """Return the lane of a message that was decoded into one change."""
        return CdlLane(self._decoder, message, change)


class CdlLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        MsgspecError: The message is not plain.
    """

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None

    def __init__(self, decoder: Decoder, message: Message, change: DataChange) -> None:
        plan, payload, self._prefix = payload_of(
            message.value or b"", decoder.plain, decoder.blocks
        )
        self._plan = plan
        self._envelope = envelope = plan.envelope(payload)
        self._fields = tuple(message_parts(payload))
        row = envelope.before if envelope.OPERATION == "DELETE" else envelope.data
        if not row or plan.schema is not change.schema:
            raise NotPlainError
        self.columns = columns = lane_columns(plan, row)
        self.is_named = plan.schema is None
        self._unique = tuple(envelope.unique or ())
        for column in columns:
            # the event path may keep these values in the details, which limit nested values
            is_scalar = column.json is str or column.json in NUMBERS
            if column.column.name in self._unique and not self.is_named and not is_scalar:
                raise NotPlainError
        self._images = PlainImages(
            columns,
            plan,
            decoder.placeholder,
            None if change.key is None else change.key.columns,
            before_image=decoder.before_image,
            has_fillers=change.source.product in FILLERS,
            is_named=self.is_named,
        )
        self.deleted_columns = self._images.deleted_columns

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        names: dict[str, Any] = {
            "ops": {name: op.value for name, op in OPERATIONS.items()},
            "unique": self._unique,
            "coordinates": coordinates,
            "millisecond": MILLISECOND,
        }
        decode = decode_statements(self._decoder(row), self._prefix, names)
        check = self._images.check(None, names, created="c", ignores_key=True)
        is_unique = [" if tuple(envelope.unique) != unique: return None"] if self._unique else []
        lines = [
            "def function(value, key):",
            *(f" {line}" for line in decode),
            *is_unique,
            " op, before, after = ops[envelope.OPERATION], envelope.before, envelope.data",
            *(f" {line}" for line in check),
            " position, transaction = coordinates(envelope.transaction, {})",
            " time = envelope.TIMESTAMP",
            " time_ns = None if time is None else time * millisecond",
            " return op, before, after, position, transaction, None, time_ns, None, False",
        ]
        read: ReadChange = compiled_function(lines, names)
        return read

    def _decoder(self, row: Any) -> Any:
        """Return the decoder of a payload; an error = the message is not plain."""
        scalars = dict[str, str | int | bool | None]
        unique = scalars if self.is_named else row_type(self._plan.wires)
        kinds: Kinds = {
            "OPERATION": (Literal[tuple(OPERATIONS)],),
            # a message without the first two is an error, also if they are null
            "DATA_STORE": literal(self._envelope.DATA_STORE)[:1],
            "TABLE_NAME": literal(self._envelope.TABLE_NAME)[:1],
            "SEG_OWNER": literal(self._envelope.SEG_OWNER),
            "TIMESTAMP": (int | None, None),
            "LOB_COLUMNS": (None, None),
            "transaction": (TransactionBlock | None, None),
            "unique": (unique,) if self._unique else (None, None),
            "data": (row | None, None),
            "before": (row | None, None),
            "message_version": (Literal[VERSION] | None, None),
            "message_type": (str | None, None),
            "HEARTBEAT_IDENTIFIER": (str | None, None),
        }
        if kinds.keys() != set(Envelope.__struct_fields__):
            raise NotPlainError
        envelope = class_of("PlainEnvelope", kinds, self._fields)
        return msgspec.json.Decoder(envelope, float_hook=decimal.Decimal).decode
