# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``debezium-flat-json`` (:mod:`changelane.formats.contract.lane`).

A plain row has all columns, none with the placeholder of unavailable values, and the added fields
of the lane, among them the operation. The added fields of the producer and the table have the
values of the lane and determine the table without the topic. Further added fields are those of the
common source blocks, and the position is complete if one of its fields is added. The message key
has the values of the row.
"""

import decimal
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Literal

import msgspec

from changelane.event import DataChange, Transaction
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    attribute,
    compiled_function,
    literal,
    values_getter,
)
from changelane.formats.debezium_envelope.message_key import NEW_KEY, OLD_KEY
from changelane.formats.debezium_envelope.plain_rows import (
    OPS,
    completeness_check,
    key_form,
    lane_columns,
    payload_decoder,
    payload_of,
)
from changelane.formats.debezium_envelope.rows.row_reader import PLAIN
from changelane.formats.debezium_envelope.rows.wire import (
    MySqlSource,
    PostgresSource,
    TransactionBlock,
)
from changelane.formats.debezium_envelope.source_block import binlog_position, postgres_position
from changelane.formats.debezium_flat.added_fields import (
    DELETED,
    ENVELOPE,
    PLACE,
    SOURCE,
    AddedField,
)
from changelane.formats.debezium_flat.decode import Decoder
from changelane.message import Message
from changelane.position import Position

_OP: Final = (ENVELOPE, "op")
_IS_DELETED: Final = {"true": True, "false": False, True: True, False: False}
_TIMES: Final = ("ts_ns", "ts_us", "ts_ms")
_READ_FIELDS: Final = (*_TIMES, "txId", "lsn", "sequence", "file", "pos", "row", "gtid")
"""The fields of source blocks that the reader of a lane uses."""


def _types(block: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(block)}


_SOURCE_TYPES: Final = {"lsn": _types(PostgresSource), "file": _types(MySqlSource)}
"""The first field of a position -> the types of the fields of its source block."""
_TRANSACTION_TYPES: Final = _types(TransactionBlock)


class FlatLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    version = 0

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        # a header with the operation has no effect, because plain rows have the operation
        headers = {n for n, added in decoder.headers.items() if (added.part, added.field) != _OP}
        self.header_names = frozenset({NEW_KEY, OLD_KEY, *headers})
        names = [
            name
            for name, added in decoder.names.items()
            if added.part == SOURCE and added.field in PLACE
        ]
        fields = [(attribute(index), str | None, None) for index in range(len(names))]
        rename = {attribute(index): name for index, name in enumerate(names)}
        probe: Any = msgspec.defstruct("Probe", fields, rename=rename, gc=False)
        self._probe: Callable[[Any], Any] = msgspec.json.Decoder(probe).decode

    def identity(self, value: bytes) -> Hashable | None:
        """Return the plan of a row's schema block and the added fields of its table."""
        try:
            plan, payload, _ = payload_of(value, PLAIN, self._decoder.blocks)
            return plan, msgspec.structs.astuple(self._probe(payload))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def open(self, message: Message, change: DataChange) -> "FlatLane":
        """Return the lane of a row that was decoded into one change."""
        return FlatLane(self._decoder, message, change)


class FlatLane:
    """Reads the plain rows of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The row is not plain.
        MsgspecError: The row is not plain.
    """

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, decoder: Decoder, message: Message, change: DataChange) -> None:
        plan, payload, self._prefix = payload_of(message.value or b"", PLAIN, decoder.blocks)
        row = plan.rows(payload)
        if not row or plan.schema is not change.schema:
            raise NotPlainError
        self._order = tuple(row)
        shape = decoder.shape(row)
        values = {name: row.pop(name) for name in shape.names}
        added = {(field.part, field.field): field for field in shape.added}
        if not row or _OP not in added or len(added) < len(shape.added):
            raise NotPlainError
        self._kinds = _kinds(added, values)
        self._has_flag = shape.has_flag
        if shape.has_flag:
            if values[DELETED] is None:
                raise NotPlainError
            is_text = isinstance(values[DELETED], str)
            self._kinds[DELETED] = ("deleted", Literal["true", "false"] if is_text else bool)
        place = {
            field
            for part, field in added
            if part == SOURCE and field in PLACE and values[added[part, field].name] is not None
        }
        if decoder.metadata_reader.depends_on_topic(place):
            raise NotPlainError
        self._position_of = _position_reader(added)
        self._is_snapshot = change.source.snapshot is not None
        self._placeholder = decoder.placeholder
        self.columns = columns = lane_columns(plan, row)
        self.is_named = is_named = plan.schema is None
        self._key = key_form(
            decoder.keys,
            message.key,
            row,
            columns=columns,
            plan=plan,
            key=change.key,
            is_named=is_named,
        )
        if self._key is not None and not decoder.has_full_deletes(change.source.product):
            key = self._key.names
            self.deleted_columns = tuple(
                column.column.name for column in columns if column.column.name in key
            )

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of rows."""
        decode = self._named_decoder() if self.is_named else self._decoder(row)
        names: dict[str, Any] = {}
        is_whole = completeness_check(
            self.columns, self._placeholder, names, is_named=self.is_named
        )
        condition = "True" if is_whole is None else is_whole("image")
        is_whole_image = compiled_function(["def function(image):", f" return {condition}"], names)
        key = self._key
        key_of = None if key is None else key.values
        is_key = None if key is None else key.is_key
        position_of, has_flag = self._position_of, self._has_flag
        created = "r" if self._is_snapshot else "c"

        def read(value: bytes, message_key: bytes | None) -> PlainChange | None:
            image, added = decode(value)
            if key_of is None or is_key is None:
                if message_key is not None:
                    return None
            elif not is_key(message_key, key_of(image)):
                return None
            if not is_whole_image(image):
                return None
            op = added.op
            if op == "c":
                op = created
            if has_flag and _IS_DELETED[added.deleted]:
                op = "d"
            position = None
            if position_of is not None:
                position = position_of(added)
                if position is None:
                    return None
            time_ns = added.ts_ns
            if time_ns is None and added.ts_us is not None:
                time_ns = added.ts_us * 1_000
            elif time_ns is None and added.ts_ms is not None:
                time_ns = added.ts_ms * 1_000_000
            transaction = None
            if added.transaction_id is not None:
                transaction = Transaction(
                    added.transaction_id,
                    added.transaction_total_order,
                    added.transaction_data_collection_order,
                )
            before, after = (image, None) if op == "d" else (None, image)
            return op, before, after, position, transaction, added.txId, time_ns, None, False

        return read

    def _decoder(self, row: Any) -> Callable[[bytes], tuple[Any, Any]]:
        """Return the decoder of a message into an image and an object with the added fields."""
        names = [column.column.name for column in self.columns]
        types = {field.encode_name: field.type for field in msgspec.structs.fields(row)}
        attributes = {name: (attribute(i), types[name]) for i, name in enumerate(names)}
        fields = self._kinds | attributes
        flat = _class_of({name: fields[name] for name in self._order if name in fields} | fields)
        decode = payload_decoder(
            msgspec.json.Decoder(flat, float_hook=decimal.Decimal).decode, self._prefix
        )
        values = values_getter(names, self.columns, is_named=False)

        def decode_row(value: bytes) -> tuple[Any, Any]:
            added = decode(value)
            return row(*values(added)), added

        return decode_row

    def _named_decoder(self) -> Callable[[bytes], tuple[Any, Any]]:
        """Return the decoder of a message without types: its image is a dictionary."""
        names, added_class = tuple(self._kinds), _class_of(self._kinds)
        decode, convert = PLAIN.rows, msgspec.convert

        def decode_row(value: bytes) -> tuple[Any, Any]:
            row: Any = decode(value)
            added = convert({name: row.pop(name) for name in names}, type=added_class)
            return row, added

        return decode_row


def _kinds(
    added_fields: Mapping[tuple[str, str], AddedField], values: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Return the attributes, the types and the defaults of added fields.

    Raises:
        NotPlainError: A field is of none of the common source blocks.
    """
    sources = {field for part, field in added_fields if part == SOURCE}
    types = next((types for name, types in _SOURCE_TYPES.items() if name in sources), {})
    kinds: dict[str, tuple[Any, ...]] = {}
    for (part, field), one in added_fields.items():
        name = one.name
        if (part, field) == _OP:
            kinds[name] = ("op", OPS)
        elif part == SOURCE and field in PLACE:
            kinds[name] = (f"place_{field}", *literal(values[name]))
        elif part == SOURCE and (field in types or field in _TIMES):
            kinds[name] = (field, types.get(field, int | None))
        elif part == ENVELOPE and field in _TIMES:
            kinds[name] = (f"process_{field}", int | None)
        elif field in _TRANSACTION_TYPES and part != SOURCE:
            kinds[name] = (f"transaction_{field}", _TRANSACTION_TYPES[field])
        else:
            raise NotPlainError
    return kinds


def _position_reader(
    added_fields: Mapping[tuple[str, str], AddedField],
) -> Callable[[Any], Position | None] | None:
    """Return the reader of the position in added fields; ``None`` if they have none."""
    fields = {field for part, field in added_fields if part == SOURCE}
    if "file" in fields:
        if "lsn" in fields:
            raise NotPlainError
        return binlog_position
    return postgres_position if "lsn" in fields else None


def _class_of(kinds: Mapping[str, tuple[Any, ...]]) -> Any:
    """Return the class with these fields; other fields that a reader uses are ``None``."""
    attributes = {attribute for attribute, *_ in kinds.values()}
    read_names = [*_READ_FIELDS, *(f"transaction_{field}" for field in _TRANSACTION_TYPES)]
    msgspec.json.encode(list(kinds))  # msgspec finds a name by the UTF-8 that Python keeps with it
    return msgspec.defstruct(
        "PlainRow",
        list(kinds.values()),
        rename={attribute: name for name, (attribute, *_) in kinds.items()},
        namespace=dict.fromkeys(name for name in read_names if name not in attributes),
        kw_only=True,
        forbid_unknown_fields=True,
        gc=False,
    )
