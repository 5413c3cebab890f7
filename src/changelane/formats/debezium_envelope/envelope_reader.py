# SPDX-License-Identifier: Apache-2.0
"""The decoder of the smaller members of the family.

A member has a wire class for its envelope, and functions for its differences (:class:`Member`).
Messages are decoded as in ``debezium-json``: a schema block is parsed once per content, and the
JSON decoder returns typed rows. A message with unknown fields, with numbers as text, or with a
boolean ``snapshot``, takes the slow path, which keeps unknown fields in the event's details.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    Key,
    Op,
    Source,
    Transaction,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.debezium_envelope.message_key import READ_ERRORS, KeyReader, key_as_row
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.other_events import MILLISECOND, loads
from changelane.formats.debezium_envelope.row_images import convert_image
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks
from changelane.formats.debezium_envelope.rows.placeholders import NO_PLACEHOLDER, Placeholder
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan, ValuePlan, decoder
from changelane.formats.debezium_envelope.source_block import integer
from changelane.message import Message
from changelane.position import Position
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

JsonRow = dict[str, Any]

_OPS: Final = {op.value: op for op in Op}
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_FIELDS: Final = decoder(dict[str, Any])
_ANY: Final = decoder(Any)
_READ_ERRORS: Final = (*READ_ERRORS, DecodeError)
_MAX_TABLES: Final = 10_000


class Draft(msgspec.Struct):
    """The parts of an event during decoding.

    Attributes:
        op: The operation.
        envelope: The message, as the member's wire class.
        plan: The plan of the rows.
        before: The before image; ``None`` if it is empty.
        after: The after image; ``None`` if it is empty.
        key: The key columns of the message key.
        key_row: The values of the message key, for a delete without a before image.
        details: Fields without a place in the model.
        offset: The message's offset in its partition.
        hidden_before: Columns with an unavailable value in the before image, beside those with the
            placeholder.
        hidden_after: The same for the after image.
        after_holds: The completeness of the after image, if the rules know it.
    """

    op: Op
    envelope: Any
    plan: RowPlan
    before: JsonRow | None
    after: JsonRow | None
    table: TableId
    source: Source
    details: dict[str, object]
    schema: Any = None
    key: Key | None = None
    key_row: JsonRow | None = None
    position: Position | None = None
    transaction: Transaction | None = None
    offset: int | None = None
    hidden_before: tuple[str, ...] = ()
    hidden_after: tuple[str, ...] = ()
    after_holds: Completeness | None = None


class Origin(msgspec.Struct, frozen=True):
    """The common part of the source blocks of one table, made once.

    Attributes:
        other_fields: Fields of the block without a place in the model.
    """

    table: TableId
    source: Source
    other_fields: Mapping[str, object] = {}


class PlainForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the messages of a member that a lane may read.

    Attributes:
        fixed: The fields of the envelope with one value in all plain messages, and the value.
        unique: The field of the envelope with the key of the row, if the member has one. A message
            key is then ignored.
        is_empty_object: A missing image is ``{}``.
        before_image: The columns of before images with real values.
        filler_products: The products whose deletes have fillers beside the key.
        detail: The field of the source block that is a detail of each event, if there is one.
    """

    fixed: Mapping[str, str | None] = {}
    unique: str | None = None
    is_empty_object: bool = False
    before_image: BeforeImage = BeforeImage.FULL
    filler_products: frozenset[str] = frozenset()
    detail: str | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The decoding rules of a member of the family.

    Attributes:
        envelope: The wire class, generic in the row; it forbids unknown fields.
        integers: Fields of the source block that are whole numbers, or text of them.
        place: The fields of the source block that *origin_of* uses.
        origin_of: Returns the producer and the table of a source block.
        position_of: Returns the position of a source block.
        transaction_of: Returns the transaction of a source block.
        has_snapshot_creates: The rows of a snapshot have the operation ``c``.
        plain: The form of plain messages; ``None`` = the member has no lanes.
        read_source: Called with the source read; keeps further fields in the details.
        before_conversion: Called before the rows' JSON values are converted.
        after_conversion: Called after the conversion; may raise ``DecodeError``.
        service_event: Returns the event for a row of one of the producer's service tables.
        source_offset_ms: Added to the source time.
        placeholder: The placeholder of unavailable values.
    """

    envelope: Any
    integers: frozenset[str]
    place: tuple[str, ...]
    origin_of: Callable[[Any], Origin]
    position_of: Callable[[Any], Position | None] = lambda _block: None
    transaction_of: Callable[[Any], Transaction | None] = lambda _block: None
    has_snapshot_creates: bool = False
    plain: PlainForm | None = None
    read_source: Callable[[Draft], None] = lambda _draft: None
    before_conversion: Callable[[Draft], None] = lambda _draft: None
    after_conversion: Callable[[Draft], None] = lambda _draft: None
    service_event: Callable[[Draft, Message], ChangeEvent | None] = lambda _draft, _message: None
    source_offset_ms: int = 0
    placeholder: Placeholder = NO_PLACEHOLDER

    def source_time_ns(self, block: Any) -> int | None:
        """Return the source time of a source block in nanoseconds."""
        time_ms: int | None = block.ts_ms
        return None if time_ms is None else (time_ms + self.source_offset_ms) * MILLISECOND


class MemberReader:
    """Decodes the messages of one codec.

    Attributes:
        member: The decoding rules.
        plain: The plan of messages without a schema block.
        blocks: The plans of schema blocks.
        keys: The reader of message keys.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self._fields = frozenset(member.envelope.__struct_fields__)
        self._source_fields = _source_fields(member.envelope)
        self._place_of = attrgetter(*member.place)
        self._origins: BoundedCache[tuple[str | None, ...], Origin] = BoundedCache(_MAX_TABLES)
        self.plain = RowPlan(None, None, member.envelope)
        self.blocks: Blocks[RowPlan] = Blocks(partial(ValuePlan, envelope=member.envelope))
        self.keys = KeyReader()

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self.keys.tombstone(message),)
        cached_block = self.blocks.find(value) if value.startswith(b'{"schema":{"') else None
        if cached_block is not None:
            plan, start = cached_block
            try:
                envelope = plan.envelope(memoryview(value)[start:-1])
                return self._row(message, envelope, plan, {})
            except _READ_ERRORS:
                pass  # the slow path decodes the message, or raises the error
        return self.blocks.read(value, self.plain, partial(self._payload, message))

    def _payload(
        self, message: Message, payload: bytes, _block: bytes | None, plan: RowPlan
    ) -> tuple[ChangeEvent, ...]:
        if payload.strip() == b"null":
            return (self.keys.tombstone(message),)
        details: dict[str, object] = {}
        try:
            envelope = plan.envelope(payload)
        except READ_ERRORS:
            envelope = self._lenient_envelope(payload, plan, details)
        return self._row(message, envelope, plan, details)

    def _lenient_envelope(self, payload: bytes, plan: RowPlan, details: dict[str, object]) -> Any:
        """Decode an envelope with unknown fields, numbers as text, or a boolean ``snapshot``."""
        parts = loads(_PARTS, payload)
        if "op" not in parts or "source" not in parts:
            raise DecodeError("not a row change of this format", code=ReasonCode.UNKNOWN_KIND)
        fields: dict[str, Any] = loads(_FIELDS, parts["source"], "$.source")
        for name in self.member.integers & fields.keys():
            fields[name] = integer(fields[name], f"$.source.{name}")
        if "snapshot" in self._source_fields and isinstance(fields.get("snapshot"), bool):
            fields["snapshot"] = "true" if fields["snapshot"] else "false"
        if "ts_ms" in parts:
            time = integer(loads(_ANY, parts["ts_ms"], "$.ts_ms"), "$.ts_ms")
            parts["ts_ms"] = msgspec.Raw(json.dumps(time))
        other_fields = {name: fields.pop(name) for name in fields.keys() - self._source_fields}
        if other_fields:
            details["source"] = {name: other_fields[name] for name in sorted(other_fields)}
        parts["source"] = msgspec.Raw(json.dumps(fields))
        extra_fields = {
            n: loads(_ANY, raw, f"$.{n}") for n, raw in parts.items() if n not in self._fields
        }
        if extra_fields:
            details["envelope"] = extra_fields
        own_fields = json.dumps({name: raw for name, raw in parts.items() if name in self._fields})
        return loads(plan.envelope_reader, own_fields)

    def _row(
        self, message: Message, envelope: Any, plan: RowPlan, details: dict[str, object]
    ) -> tuple[ChangeEvent, ...]:
        op = _OPS.get(envelope.op)
        if op is None:
            raise DecodeError(
                "an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path="$.op"
            )
        if plan.details:
            details.update(plan.details)
        before, after = envelope.before or None, envelope.after or None
        member, block = self.member, envelope.source
        place = self._place_of(block)
        origin = self._origins.get(place) or self._origins.add(place, member.origin_of(block))
        if member.has_snapshot_creates and op is Op.CREATE and origin.source.snapshot is not None:
            op = Op.READ  # "whether the change is a part of the snapshot"
        draft = Draft(
            op,
            envelope,
            plan,
            before,
            after,
            origin.table,
            origin.source,
            details,
            plan.schema,
            position=member.position_of(block),
            transaction=member.transaction_of(block),
            offset=message.offset,
        )
        member.read_source(draft)
        if origin.other_fields:
            keep_other_fields(draft, origin.other_fields)
        if message.key is not None:
            draft.key, row = self.keys.read(message.key, after or before, plan, details)
            if before is None and op is Op.DELETE and row is not None:
                draft.key_row = key_as_row(row, plan)
        member.before_conversion(draft)
        placeholder = member.placeholder
        before, after = draft.before, draft.after
        if before is not None:
            hidden = draft.hidden_before
            convert_image(before, plan, placeholder, "$.before", details, hidden, keep_usual=True)
        if after is not None:
            hidden = draft.hidden_after
            convert_image(after, plan, placeholder, "$.after", details, hidden, keep_usual=True)
        if draft.key_row is not None:
            plan.convert(draft.key_row, "key")
        member.after_conversion(draft)
        service_event = member.service_event(draft, message)
        return (
            (service_event,)
            if service_event is not None
            else (_change(draft, member.source_time_ns(block)),)
        )


def _source_fields(envelope: Any) -> frozenset[str]:
    fields = {field.name: field.type for field in msgspec.structs.fields(envelope)}
    return frozenset(fields["source"].__struct_fields__)


def _change(draft: Draft, source_time_ns: int | None) -> DataChange:
    op, before, after, envelope = draft.op, draft.before, draft.after, draft.envelope
    before_completeness = Completeness.UNKNOWN if draft.schema else Completeness.FULL
    after_completeness = draft.after_holds or before_completeness
    if op is Op.DELETE:
        if before is None and draft.key_row:
            before, before_completeness = draft.key_row, Completeness.KEY
        if before is None:
            raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path="$.before")
    elif after is None:
        raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path="$.after")
    process_ms = envelope.ts_ms
    return DataChange(
        op,
        draft.table,
        draft.key,
        before,
        after,
        draft.schema,
        draft.position,
        draft.transaction,
        draft.source,
        source_time_ns,
        None if process_ms is None else process_ms * MILLISECOND,
        Completeness.UNKNOWN if before is None else before_completeness,
        Completeness.UNKNOWN if after is None else after_completeness,
        draft.details,
    )


def keep_other_fields(draft: Draft, source_fields: Mapping[str, Any]) -> None:
    """Keep fields of the source block without a place in the model in the details, except nulls."""
    other_fields = {name: value for name, value in source_fields.items() if value is not None}
    if other_fields:
        stored_fields: Any = draft.details.get("source", {})
        draft.details["source"] = {**stored_fields, **other_fields}


def is_envelope(value: bytes, markers: tuple[bytes, ...]) -> bool:
    """Return whether a message contains all markers of a format: a fast check before decoding."""
    return all(marker in value for marker in markers)
