# SPDX-License-Identifier: Apache-2.0
"""The fields that the transformation adds to a row, and the metadata in them.

``add.fields=op,table,source.ts_ms`` adds ``__op``, ``__table`` and ``__source_ts_ms``. A reference
to a field of the source block may omit ``source.``; then the added field has no ``source_`` either.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import Op, Transaction
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.debezium_envelope import blocks, other_events, source_block
from changelane.formats.debezium_envelope.rows.wire import TransactionBlock
from changelane.formats.debezium_envelope.source_block import TableOrigin
from changelane.formats.debezium_flat.options import Options, table_parts, topic_parts
from changelane.position import Position
from changelane.reason_codes import ReasonCode

DELETED: Final = "__deleted"
"""The field of deletes; its prefix is fixed."""

ENVELOPE, SOURCE, TRANSACTION = "envelope", "source", "transaction"
_TIMES: Final = other_events.TIMES
_OF_ENVELOPE: Final = ("op", *_TIMES)
_OF_TRANSACTION: Final = TransactionBlock.__struct_fields__
_OF_SOURCE: Final = tuple(
    dict.fromkeys(
        (
            *blocks.FIELD_NAMES,
            *"commit_ts_ms start_scn start_ts_ms txSeq collection".split(),
        )
    )
)
_MAX_TABLES: Final = 10_000


class AddedField(msgspec.Struct, frozen=True):
    """An added field: its name on the wire, and the part and field of the envelope."""

    name: str
    part: str
    field: str


def possible_fields(prefix: str) -> dict[str, AddedField]:
    """Return all fields that may be added under a prefix; none without a prefix."""
    if not prefix:
        return {}
    all_fields = [AddedField(prefix + field, ENVELOPE, field) for field in _OF_ENVELOPE]
    all_fields += [
        AddedField(prefix + field, SOURCE, field)
        for field in _OF_SOURCE
        if field not in _OF_ENVELOPE
    ]
    all_fields += [AddedField(f"{prefix}source_{field}", SOURCE, field) for field in _OF_SOURCE]
    all_fields += [
        AddedField(f"{prefix}transaction_{field}", TRANSACTION, field) for field in _OF_TRANSACTION
    ]
    return {added_field.name: added_field for added_field in all_fields}


def fields_in(text: str, prefix: str, option: str) -> tuple[AddedField, ...]:
    """Return the added fields of a list such as ``op,source.ts_ms:at``.

    Raises:
        ConfigError: An entry is no field of the envelope.
    """
    added: list[AddedField] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        reference, _, new_name = entry.partition(":")
        part, dot, field = reference.rpartition(".")
        if not dot:
            part = ENVELOPE if field in _OF_ENVELOPE else SOURCE
        is_known = part in {SOURCE, TRANSACTION} or (part == ENVELOPE and not dot)
        if not field or not is_known:
            msg = f"{option}: {entry!r} is not a field of the envelope"
            raise ConfigError(msg)
        name = new_name or (f"{part}_{field}" if dot else field)
        added.append(AddedField(prefix + name, part, field))
    return tuple(added)


class RowMetadata(msgspec.Struct):
    """The metadata of one message, from its added fields, its topic and the options.

    Attributes:
        op: The producer's operation; ``None`` if it is unknown.
    """

    table_origin: TableOrigin
    op: str | None = None
    position: Position | None = None
    transaction: Transaction | None = None
    time_ns: int | None = None
    process_ns: int | None = None


_TEXT_OR_NONE: Final = frozenset({str, type(None)})
PLACE: Final = ("version", "connector", "name", "snapshot", "db", "schema", "table")


class Shape:
    """The added fields of rows with the same columns, in their order on the wire.

    Attributes:
        names: The names of the added fields, including ``__deleted``.
        has_flag: ``__deleted`` is one of them.
        names_by_field: Part and field -> the name of the added field.
        op: The name of the operation; empty if it is not added.
        source_names: The names of added fields with the producer or the table, and their fields.
        source_ms: The name of the source time in milliseconds.
        process_ms: The name of the process time in milliseconds.
        is_plain: There are no other added fields, and no field is added twice.
    """

    def __init__(self, names: Iterable[str], fields_by_name: Mapping[str, AddedField]) -> None:
        self.names = tuple(names)
        self.has_flag = DELETED in self.names
        self.added = tuple(fields_by_name[name] for name in self.names if name != DELETED)
        self.names_by_field = {
            (added_field.part, added_field.field): added_field.name for added_field in self.added
        }
        fields = dict(self.names_by_field)
        self.op = fields.pop((ENVELOPE, "op"), "")
        self.source_ms = fields.pop((SOURCE, "ts_ms"), "")
        self.process_ms = fields.pop((ENVELOPE, "ts_ms"), "")
        self.source_names = tuple(
            (name, field)
            for (part, field), name in fields.items()
            if part == SOURCE and field in PLACE
        )
        used = sum(map(bool, (self.op, self.source_ms, self.process_ms))) + len(self.source_names)
        self.is_plain = used == len(self.added)


class MetadataReader:
    """Returns the metadata of a message, from its added fields, its topic and the options."""

    def __init__(self, options: Options) -> None:
        self._table = table_parts(options.table)
        self._topic = topic_parts(options.topic)
        self._table_origins: BoundedCache[tuple[Any, ...], TableOrigin] = BoundedCache(_MAX_TABLES)

    def read(
        self, values: Iterable[tuple[AddedField, Any]], topic: str | None, details: dict[str, Any]
    ) -> RowMetadata:
        """Return the metadata in added fields.

        Raises:
            DecodeError: A field is not of its type; the path is that of Debezium's envelope.
        """
        parts: dict[str, dict[str, Any]] = {ENVELOPE: {}, SOURCE: {}, TRANSACTION: {}}
        for added_field, value in values:
            if value is not None:
                parts[added_field.part].setdefault(added_field.field, value)
        envelope, fields = parts[ENVELOPE], parts[SOURCE]
        table_origin = self._table_origin(fields, topic)
        position, other_fields = source_block.read(fields) if fields else (None, {})
        time_ns, stored_times = _instant(fields, "$.source")
        other_fields.update(stored_times)
        other_fields.update(table_origin.other_fields)
        if other_fields:
            details["source"] = other_fields
        process_ns, times = _instant(envelope, "$")
        if times:
            details["times"] = times
        block = other_events.transaction_block(parts[TRANSACTION], details)
        op = source_block.text(envelope.get("op"), "$.op")
        return RowMetadata(
            table_origin, op, position, other_events.transaction_of(block), time_ns, process_ns
        )

    def read_plain(
        self, shape: Shape, added_values: Mapping[str, Any], topic: str | None
    ) -> RowMetadata | None:
        """Return the result of :meth:`read` for a plain shape; ``None`` = use :meth:`read`."""
        values = tuple([added_values[name] for name, _ in shape.source_names])
        op = added_values[shape.op] if shape.op else None
        source_ms = added_values[shape.source_ms] if shape.source_ms else None
        process_ms = added_values[shape.process_ms] if shape.process_ms else None
        if (
            not _TEXT_OR_NONE.issuperset(map(type, values))
            or not (op is None or type(op) is str)
            or not (source_ms is None or type(source_ms) is int)
            or not (process_ms is None or type(process_ms) is int)
        ):
            return None
        key = (shape, topic, values)
        table_origin = self._table_origins.get(key)
        if table_origin is None:
            table_origin = self._table_origin(
                {field: added_values[name] for name, field in shape.source_names}, topic
            )
            self._table_origins.add(key, table_origin)
        if table_origin.other_fields:
            return None
        return RowMetadata(
            table_origin,
            op,
            None,
            None,
            None if source_ms is None else source_ms * 1_000_000,
            None if process_ms is None else process_ms * 1_000_000,
        )

    def _table_origin(self, fields: Mapping[str, Any], topic: str | None) -> TableOrigin:
        names = PLACE
        try:
            cache_key = (topic, *(fields.get(name) for name in names))
            table_origin = self._table_origins.get(cache_key)
        except TypeError:  # a list or an object, which table_origin() rejects
            cache_key, table_origin = (), None
        if table_origin is None:
            parts = {**self._of_topic(topic), **self._table}
            parts.update((name, fields[name]) for name in names if fields.get(name) is not None)
            table_origin = source_block.table_origin(parts)
            if cache_key:
                self._table_origins.add(cache_key, table_origin)
        return table_origin

    def depends_on_topic(self, fields: Collection[str]) -> bool:
        """Return whether the table of a row with these source fields depends on the topic."""
        return any(
            name not in fields and name not in self._table for name in ("table", *self._topic)
        )

    def _of_topic(self, topic: str | None) -> dict[str, str]:
        """Return the source fields in a topic's name, from its end; the server may have dots."""
        if not topic:
            return {}
        names = self._topic
        parts = topic.split(".")
        if len(parts) < len(names):
            return {"table": parts[-1]}
        head = len(parts) - len(names) + 1
        if len(names) == 1:
            return {"table": parts[-1]}
        return dict(zip(names, (".".join(parts[:head]), *parts[head:]), strict=True))


_SIZES: Final = {"ts_ns": 1, "ts_us": 1000, "ts_ms": 1_000_000}


def _instant(fields: Mapping[str, Any], path: str) -> tuple[int | None, dict[str, Any]]:
    """Return a time in nanoseconds, and its fields if they do not follow from it."""
    time_ns: int | None = None
    stored_times: dict[str, int] = {}
    for name, size in _SIZES.items():
        value = source_block.integer(fields.get(name), f"{path}.{name}")
        if value is None:
            continue
        stored_times[name] = value
        if time_ns is None:
            time_ns = value * size
    is_odd = time_ns is not None and any(
        time_ns // _SIZES[name] != v for name, v in stored_times.items()
    )
    return time_ns, stored_times if is_odd else {}


def read_flag(value: object, path: str) -> bool:
    """Return whether a row is deleted, from a boolean or from text.

    Raises:
        DecodeError: The value is neither true nor false.
    """
    is_deleted = _FLAGS.get(value) if isinstance(value, str | bool) else None
    if value is None or is_deleted is not None:
        return bool(is_deleted)
    raise DecodeError("neither true nor false", code=ReasonCode.WRONG_TYPE, path=path)


_FLAGS: Final[Mapping[str | bool, bool]] = {"true": True, "false": False, True: True, False: False}

OPS: Final = {op.value: op for op in Op}
