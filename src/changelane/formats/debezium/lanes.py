# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``debezium-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change with the operation ``c``, ``u``, ``d`` or ``r`` of PostgreSQL, MySQL
or MariaDB. Its source block has the values of the lane (version, server, snapshot, table) and a
position. Its images have all columns, and none has the placeholder of unavailable values. Its key
has the values of its row. An update does not change the key. A delete of PostgreSQL has fillers
in all columns beside the key.

The class of the source block has the values of the lane as literals, so that the JSON decoder
rejects the messages of other tables.
"""

import decimal
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from changelane.event import DataChange, Op, Transaction
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    attribute,
    values_getter,
)
from changelane.formats.contract.nesting import is_too_deep
from changelane.formats.debezium.decode import Decoder
from changelane.formats.debezium_envelope.message_key import NEW_KEY, OLD_KEY, JsonRow
from changelane.formats.debezium_envelope.options import FILLER_PRODUCTS, BeforeImage
from changelane.formats.debezium_envelope.plain_rows import KeyForm, lane_columns
from changelane.formats.debezium_envelope.rows.row_reader import PLAIN, RowPlan
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS
from changelane.formats.debezium_envelope.rows.wire import (
    Envelope,
    MySqlSource,
    PostgresSource,
    TransactionBlock,
)
from changelane.formats.debezium_envelope.source_block import (
    binlog_position,
    instant,
    postgres_position,
)
from changelane.message import Message

_PLACE: Final = ("version", "name", "snapshot", "db", "schema", "table")
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_OPS: Final = Literal["c", "u", "d", "r"]


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
_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


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
            plan, payload, _ = _payload_of(self._decoder, value)
            source = _probe(payload).source
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return plan, *msgspec.structs.astuple(source)

    def open(self, message: Message, change: DataChange) -> "DebeziumLane":
        """Return the lane of a message that was decoded into one change."""
        try:
            return DebeziumLane(self._decoder, message, change)
        except (msgspec.MsgspecError, ValueError):
            raise NotPlainError from None


def _payload_of(decoder: Decoder, value: bytes) -> tuple[RowPlan, Any, bytes]:
    """Return the plan, the payload and the bytes before the payload of a message."""
    if not value.startswith(b'{"schema":'):
        return PLAIN, value, b""
    block = decoder.cached_block(value)
    if block is None:
        raise NotPlainError
    plan, start = block
    return plan, memoryview(value)[start:-1], value[:start]


class DebeziumLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        MsgspecError: The message is not plain.
    """

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, decoder: Decoder, message: Message, change: DataChange) -> None:
        plan, payload, self._prefix = _payload_of(decoder, message.value or b"")
        envelope = plan.envelope(payload)
        self._source = envelope.source
        declared = decoder.origin_of(envelope.source).declared
        if plan is PLAIN and declared is not None:
            plan = declared[0]
            envelope = plan.envelope(payload)
        if plan.schema is not change.schema:
            raise NotPlainError
        self._placeholder = decoder.placeholder
        self._plan = plan
        self._is_snapshot = change.source.snapshot is not None
        self._envelope_fields = tuple(_parts(payload))
        self._source_fields = tuple(_parts(_parts(payload)["source"]))
        row: JsonRow | None = envelope.before if change.op is Op.DELETE else envelope.after
        if not row:
            raise NotPlainError
        self.columns = lane_columns(plan, row)
        self.is_named = plan.schema is None
        self._key = self._key_form(decoder, message.key, change, row)
        may_have_fillers = self._key is not None and decoder.before_image is not BeforeImage.FULL
        is_key_only = decoder.before_image is BeforeImage.KEY
        self._has_plain_updates = not (may_have_fillers and is_key_only)
        if may_have_fillers and (is_key_only or change.source.product in FILLER_PRODUCTS):
            names = () if self._key is None else self._key.names
            self.deleted_columns = tuple(name for name in _names(self.columns) if name in names)

    def _key_form(
        self, decoder: Decoder, data: bytes | None, change: DataChange, row: Mapping[str, Any]
    ) -> KeyForm | None:
        if data is None:
            return None
        key, _ = decoder.keys.read(data, row, self._plan, {})
        if key is None or key != change.key:
            raise NotPlainError
        key_plan = decoder.keys.plan_of(data)
        return KeyForm(data, key.columns, row, self.columns, key_plan, is_named=self.is_named)

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        decode = self._decode(row)
        is_whole = self._completeness_check()
        has_only_fillers = self._filler_check()
        key_form, has_plain_updates = self._key, self._has_plain_updates
        key_of = None if key_form is None else key_form.values
        is_key = None if key_form is None else key_form.is_key
        is_binlog = isinstance(self._source, MySqlSource)
        position_of = binlog_position if is_binlog else postgres_position
        created = "r" if self._is_snapshot else "c"

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            envelope = decode(value)
            op, before, after = envelope.op, envelope.before, envelope.after
            image = after
            if op == "d":
                if before is None or after is not None or not has_only_fillers(before):
                    return None
                image = before
            elif after is None:
                return None
            elif op == "c":
                op = created
            if key_of is None or is_key is None:
                if key is not None:
                    return None
            elif not is_key(key, key_of(image)):
                return None
            if not is_whole(image):
                return None
            if before is not None and image is after:
                if op != "u" or not has_plain_updates or not is_whole(before):
                    return None
                if key_of is not None and key_of(before) != key_of(after):
                    return None
            source, block, transaction = envelope.source, envelope.transaction, None
            position = position_of(source)
            if position is None:
                return None
            time_ns = source.ts_ns
            if time_ns is None:
                time_ns, _ = instant(source.ts_ms, source.ts_us, None)
            if block is not None and block.id is not None:
                transaction = Transaction(block.id, block.total_order, block.data_collection_order)
            return (
                op,
                before,
                after,
                position,
                transaction,
                None if is_binlog else source.txId,
                time_ns,
            )

        return read

    def _decode(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        kinds: dict[str, tuple[Any, ...]] = {
            "op": (_OPS,),
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
        envelope = _class_of("PlainEnvelope", kinds, self._envelope_fields)
        decode = msgspec.json.Decoder(envelope, float_hook=decimal.Decimal).decode
        prefix, start = self._prefix, len(self._prefix)
        if not prefix:
            return decode

        def decode_payload(value: bytes) -> Any:
            if value[-1:] != b"}" or not value.startswith(prefix):
                raise NotPlainError
            return decode(memoryview(value)[start:-1])

        return decode_payload

    def _source_class(self) -> Any:
        source = self._source
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, None) for field in msgspec.structs.fields(type(source))
        }
        place = {name: getattr(source, name) for name in _PLACE if name in kinds}
        kinds.update((name, _literal(value)) for name, value in place.items())
        kinds["connector"] = _literal(type(source).__struct_config__.tag)
        if isinstance(source, PostgresSource):
            kinds["lsn"] = (_INT64,)
        return _class_of("PlainSource", kinds, self._source_fields)

    def _completeness_check(self) -> Callable[[Any], bool]:
        """Return the check whether an image has all columns, none with the placeholder."""
        placeholder = self._placeholder
        if self.is_named:
            names = _names(self.columns)
            return lambda row: tuple(row) == names and not placeholder.may_be_in(row)
        return placeholder.absence(
            {attribute(index): column.json for index, column in enumerate(self.columns)}
        )

    def _filler_check(self) -> Callable[[Any], bool]:
        """Return the check whether a deleted row has fillers in all columns beside the key.

        The filler of a column that is NOT NULL is any value, as
        :func:`~changelane.formats.debezium_envelope.fillers.blank_fillers` reads it. The event path
        keeps such values in the details, so a value that is nested too deeply is not plain.
        """
        if self.deleted_columns is None:
            return lambda _row: True
        plan, key = self._plan, self.deleted_columns
        fillers = {
            name: filler
            for name, filler in plan.fillers.items()
            if name not in key and plan.fields[name].optional
        }
        values = values_getter(tuple(fillers), self.columns, is_named=self.is_named)
        expected = tuple(fillers.values())
        nested = [
            column.column.name
            for column in self.columns
            if column.column.name not in {*key, *fillers}
            and column.json is not str
            and column.json not in NUMBERS
        ]
        if not nested:
            return lambda row: values(row) == expected
        other_values = values_getter(nested, self.columns, is_named=self.is_named)
        return lambda row: values(row) == expected and not is_too_deep(other_values(row))


def _names(columns: Iterable[LaneColumn]) -> tuple[str, ...]:
    return tuple(column.column.name for column in columns)


def _class_of(
    name: str, kinds: Mapping[str, tuple[Any, ...]], message_fields: tuple[str, ...]
) -> Any:
    """Return a class with fields of types (and defaults), in the order of a message.

    msgspec reads the fields of a class faster in their order.
    """
    if not kinds.keys() >= set(message_fields):
        raise NotPlainError
    fields: list[Any] = [
        (field, *kinds[field]) for field in dict.fromkeys((*message_fields, *kinds))
    ]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def _literal(value: Any) -> tuple[Any, ...]:
    """Return the type of a field with one value, and its default if the value is null."""
    return (None, None) if value is None else (Literal[value],)
