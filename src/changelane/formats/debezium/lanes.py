# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``debezium-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change with the operation ``c``, ``u``, ``d`` or ``r`` of PostgreSQL, MySQL
or MariaDB. Its source block has the values of the lane (version, server, snapshot, table) and a
position. Its images have all columns, and none has the placeholder of unavailable values, but for
texts of updates without a before image, which rows of tables are read from. Its key has the values
of its row. An update does not change the key. A delete of PostgreSQL has fillers in all columns
beside the key.

The class of the source block has the values of the lane as literals, so that the JSON decoder
rejects the messages of other tables.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Annotated, Any, Final

import msgspec

from changelane.event import DataChange, Op, Transaction
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    ReadChange,
    compiled_function,
    literal,
)
from changelane.formats.debezium.decode import Decoder
from changelane.formats.debezium_envelope.message_key import NEW_KEY, OLD_KEY, JsonRow
from changelane.formats.debezium_envelope.options import FILLER_PRODUCTS
from changelane.formats.debezium_envelope.plain_rows import (
    OPS,
    PlainImages,
    class_of,
    decode_statements,
    key_form,
    lane_columns,
    message_parts,
    payload_of,
)
from changelane.formats.debezium_envelope.rows.row_reader import PLAIN
from changelane.formats.debezium_envelope.rows.wire import (
    Envelope,
    MySqlSource,
    PostgresSource,
    TransactionBlock,
)
from changelane.formats.debezium_envelope.source_block import (
    binlog_position,
    nanoseconds,
    postgres_position,
)
from changelane.message import Message

_PLACE: Final = ("version", "name", "snapshot", "db", "schema", "table")
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


_POSITION: Final = ("position = position_of(source)", "if position is None: return None")
_TIME: Final = (
    "time_ns = source.ts_ns",
    "if time_ns is None: time_ns = nanoseconds(source.ts_ms, source.ts_us)",
)
_PROCESS_TIME: Final = (
    "process_ns = envelope.ts_ns",
    "if process_ns is None: process_ns = nanoseconds(envelope.ts_ms, envelope.ts_us)",
)
_TRANSACTION: Final = (
    "block, transaction = envelope.transaction, None",
    "if block is not None and block.id is not None:",
    " transaction = Transaction(block.id, block.total_order, block.data_collection_order)",
)


class _Probe(msgspec.Struct, gc=False):
    """The part of an envelope that identifies its lane."""

    source: "_ProbeSource"


class _ProbeSource(msgspec.Struct, gc=False):
    connector: str | None = None
    version: str | None = None
    name: str | None = None
    snapshot: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


class DebeziumLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names = frozenset({NEW_KEY, OLD_KEY})

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @property
    def version(self) -> int:
        """The version of the plans of tables."""
        return self._decoder.plans_version

    def identity(self, value: bytes) -> Hashable | None:
        """Return the plan of a message's schema block and the values of its source block."""
        try:
            plan, payload, _ = payload_of(value, PLAIN, self._decoder.blocks)
            source = _probe(payload).source
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return plan, *msgspec.structs.astuple(source)

    def open(self, message: Message, change: DataChange) -> "DebeziumLane":
        """Return the lane of a message that was decoded into one change."""
        return DebeziumLane(self._decoder, message, change)


class DebeziumLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        MsgspecError: The message is not plain.
    """

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None = None
    placeholder: str | None
    placeholder_columns: frozenset[str]

    def __init__(self, decoder: Decoder, message: Message, change: DataChange) -> None:
        plan, payload, self._prefix = payload_of(message.value or b"", PLAIN, decoder.blocks)
        envelope = plan.envelope(payload)
        self._decoder = decoder
        self._source = envelope.source
        declared = decoder.origin_of(envelope.source).declared
        if plan is PLAIN and declared is not None:
            plan = declared[0]
            envelope = plan.envelope(payload)
        if plan.schema is not change.schema:
            raise NotPlainError
        self._is_snapshot = change.source.snapshot is not None
        self._envelope_fields = tuple(message_parts(payload))
        self._source_fields = tuple(message_parts(message_parts(payload)["source"]))
        row: JsonRow | None = envelope.before if change.op is Op.DELETE else envelope.after
        if not row:
            raise NotPlainError
        self.columns = lane_columns(plan, row)
        self.is_named = plan.schema is None
        key, is_named = change.key, self.is_named
        self._key = key_form(
            decoder.keys,
            message.key,
            row,
            columns=self.columns,
            plan=plan,
            key=key,
            is_named=is_named,
        )
        self._images = PlainImages(
            self.columns,
            plan,
            decoder.placeholder,
            None if self._key is None else self._key.names,
            before_image=decoder.before_image,
            has_fillers=change.source.product in FILLER_PRODUCTS,
            is_named=is_named,
        )
        self.deleted_columns = self._images.deleted_columns
        self.placeholder = decoder.placeholder.forms.get("text")
        self.placeholder_columns = self._images.placeholder_columns

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        field_id = "None" if self._is_binlog else "source.txId"
        read: ReadChange = self._compiled(
            row,
            *(*_POSITION, *_TIME, *_TRANSACTION),
            f"return op, before, after, position, transaction, {field_id}, time_ns, None, False",
            has_unavailable=True,
        )
        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events, all of which have details (:class:`EventLane`)."""
        detail = "server_id" if self._is_binlog else "txId"
        read: ReadChange = self._compiled(
            row,
            # a field without a place in the model makes details
            f"if source.{detail} is None: return None",
            *(_POSITION if has_positions or self._is_binlog else ("position = None",)),
            *(*_TIME, *_PROCESS_TIME, *_TRANSACTION),
            "return op, before, after, position, transaction, None, time_ns, process_ns, True",
        )
        return read

    @property
    def _is_binlog(self) -> bool:
        return isinstance(self._source, MySqlSource)

    def _compiled(self, row: Any, *statements: str, has_unavailable: bool = False) -> Any:
        """Return the reader that ends in some statements, over the envelope and its parts.

        Args:
            row: The class of the images.
            statements: They read ``source``, ``op``, ``before`` and ``after``.
            has_unavailable: As in :meth:`PlainImages.check`.
        """
        names: dict[str, Any] = {
            "position_of": binlog_position if self._is_binlog else postgres_position,
            "nanoseconds": nanoseconds,
            "Transaction": Transaction,
            "decoder": self._decoder,
            "version": self._decoder.plans_version,
        }
        decode = decode_statements(self._decode(row), self._prefix, names)
        created = "r" if self._is_snapshot else "c"
        check = self._images.check(
            self._key, names, created=created, has_unavailable=has_unavailable
        )
        lines = [
            "def function(value, key):",
            " if decoder.plans_version != version: return None",
            *(f" {line}" for line in decode),
            " op, before, after = envelope.op, envelope.before, envelope.after",
            *(f" {line}" for line in check),
            " source = envelope.source",
            *(f" {line}" for line in statements),
        ]
        return compiled_function(lines, names)

    def _decode(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        kinds: dict[str, tuple[Any, ...]] = {
            "op": (OPS,),
            "source": (self._source_class(),),
            "before": (row | None, None),
            "after": (row | None, None),
            "transaction": (TransactionBlock | None, None),
            "ts_ms": (int | None, None),
            "ts_us": (int | None, None),
            "ts_ns": (int | None, None),
        }
        if kinds.keys() != set(Envelope.__struct_fields__):
            raise NotPlainError
        envelope = class_of("PlainEnvelope", kinds, self._envelope_fields)
        return msgspec.json.Decoder(envelope, float_hook=decimal.Decimal).decode

    def _source_class(self) -> Any:
        source = self._source
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, None) for field in msgspec.structs.fields(type(source))
        }
        place = {name: getattr(source, name) for name in _PLACE if name in kinds}
        kinds.update((name, literal(value)) for name, value in place.items())
        kinds["connector"] = literal(type(source).__struct_config__.tag)
        if isinstance(source, PostgresSource):
            kinds["lsn"] = (_INT64,)
        return class_of("PlainSource", kinds, self._source_fields)
