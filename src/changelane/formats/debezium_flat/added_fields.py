# SPDX-License-Identifier: Apache-2.0
"""The fields that the transformation adds to a row: which there are, and what they tell.

``add.fields=op,table,source.ts_ms`` adds ``__op``, ``__table`` and ``__source_ts_ms``: a field of
the source block may be named without its struct, and then its name has no ``source_`` either.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import Op, Transaction
from changelane.formats.debezium_envelope import blocks, other_events, source_block
from changelane.formats.debezium_envelope.rows.wire import TransactionBlock
from changelane.formats.debezium_envelope.source_block import TableOrigin
from changelane.formats.debezium_flat.options import Options, table_parts, topic_parts
from changelane.position import Position
from changelane.reason_codes import ReasonCode

DELETED: Final = "__deleted"
"""This name has no prefix of the user's."""

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
_MAX_PLACES: Final = 10_000


class AddedField(msgspec.Struct, frozen=True):
    """One added field: its name on the wire, and the part and field of the envelope."""

    name: str
    part: str
    field: str


def every(prefix: str) -> dict[str, AddedField]:
    """Return all that may be added under a prefix; without one only what the user lists."""
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


def listed(text: str, prefix: str, option: str) -> tuple[AddedField, ...]:
    """Return what a list such as ``op,source.ts_ms:at`` adds.

    Raises:
        ConfigError: An entry names no field.
    """
    added: list[AddedField] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        reference, _, new_name = entry.partition(":")
        part, dot, field = reference.rpartition(".")
        if not dot:
            part = ENVELOPE if field in _OF_ENVELOPE else SOURCE
        is_known = part in {SOURCE, TRANSACTION} or (part == ENVELOPE and not dot)
        if not field or not is_known:
            msg = f"{option}: {entry!r} is no field of the envelope"
            raise ConfigError(msg)
        name = new_name or (f"{part}_{field}" if dot else field)
        added.append(AddedField(prefix + name, part, field))
    return tuple(added)


class RowMetadata(msgspec.Struct):
    """What the added fields of one message tell.

    Attributes:
        op: The producer's word, ``None`` when it is not told.
    """

    table_origin: TableOrigin
    op: str | None = None
    position: Position | None = None
    transaction: Transaction | None = None
    time_ns: int | None = None
    process_ns: int | None = None


_TEXT_OR_NONE: Final = frozenset({str, type(None)})
_PLACE: Final = ("version", "connector", "name", "snapshot", "db", "schema", "table")


class Shape:
    """The added fields of rows that look alike, in their order on the wire.

    Attributes:
        names: Their names, ``__deleted`` among them.
        has_flag: Whether it is.
        told: Part and field -> the name that tells it.
        op: The name of the operation, empty when there is none.
        table_origin: Names that tell who and where, with what they are.
        source_ms: The name of the source time in milliseconds.
        process_ms: The name of the process time in milliseconds.
        is_plain: There is nothing else, and nothing twice.
    """

    def __init__(self, names: Iterable[str], known_fields: Mapping[str, AddedField]) -> None:
        self.names = tuple(names)
        self.has_flag = DELETED in self.names
        self.added = tuple(known_fields[name] for name in self.names if name != DELETED)
        self.told = {
            (added_field.part, added_field.field): added_field.name for added_field in self.added
        }
        fields = dict(self.told)
        self.op = fields.pop((ENVELOPE, "op"), "")
        self.source_ms = fields.pop((SOURCE, "ts_ms"), "")
        self.process_ms = fields.pop((ENVELOPE, "ts_ms"), "")
        self.table_origin = tuple(
            (name, field)
            for (part, field), name in fields.items()
            if part == SOURCE and field in _PLACE
        )
        used = sum(map(bool, (self.op, self.source_ms, self.process_ms))) + len(self.table_origin)
        self.is_plain = used == len(self.added)


class MetadataReader:
    """Makes the origin of an event of its added fields, its topic and the options."""

    def __init__(self, options: Options) -> None:
        self._table = table_parts(options.table)
        self._topic = topic_parts(options.topic)
        self._table_origins: dict[tuple[Any, ...], TableOrigin] = {}

    def read(
        self, values: Iterable[tuple[AddedField, Any]], topic: str | None, details: dict[str, Any]
    ) -> RowMetadata:
        """Return what the added fields tell.

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
        """Return what :meth:`read` returns, for plain shapes; ``None`` = go the long way."""
        values = tuple([added_values[name] for name, _ in shape.table_origin])
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
                {field: added_values[name] for name, field in shape.table_origin}, topic
            )
            if len(self._table_origins) >= _MAX_PLACES:
                self._table_origins.clear()
            self._table_origins[key] = table_origin
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
        names = _PLACE
        try:
            words = (topic, *(fields.get(name) for name in names))
            table_origin = self._table_origins.get(words)
        except TypeError:  # a list or an object, which the slow way refuses
            words, table_origin = (), None
        if table_origin is None:
            parts = {**self._of_topic(topic), **self._table}
            parts.update((name, fields[name]) for name in names if fields.get(name) is not None)
            table_origin = source_block.table_origin(parts)
            if len(self._table_origins) >= _MAX_PLACES:
                self._table_origins.clear()
            if words:
                self._table_origins[words] = table_origin
        return table_origin

    def _of_topic(self, topic: str | None) -> dict[str, str]:
        """Return what the topic's name tells, from its end; its server may have dots."""
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
    """Return one time in nanoseconds, and its fields where they do not follow from it."""
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


def flag(value: object, path: str) -> bool:
    """Return whether a row is deleted; ``"false"`` is text, too.

    Raises:
        DecodeError: It is neither true nor false.
    """
    flag = _FLAGS.get(value) if isinstance(value, str | bool) else None
    if value is None or flag is not None:
        return bool(flag)
    raise DecodeError("neither true nor false", code=ReasonCode.WRONG_TYPE, path=path)


_FLAGS: Final[Mapping[str | bool, bool]] = {"true": True, "false": False, True: True, False: False}

OPS: Final = {op.value: op for op in Op}
