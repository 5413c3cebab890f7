# SPDX-License-Identifier: Apache-2.0
"""The lanes of the smaller members of the family (:mod:`changelane.formats.contract.lane`).

The rules that decode a member's messages (:class:`Member`) also state its plain messages: row
changes whose source block has the place of the lane, and whose images have all columns, none with
the placeholder of unavailable values. The message key has the values of the row, unless the member
has a field for the key. An update does not change the key.
"""

import decimal
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, Final

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    ReadChange,
    compiled_function,
    literal,
)
from changelane.formats.debezium_envelope.envelope_reader import MemberReader, PlainForm
from changelane.formats.debezium_envelope.other_events import MILLISECOND
from changelane.formats.debezium_envelope.plain_rows import (
    OPS,
    Kinds,
    PlainImages,
    class_of,
    key_form,
    lane_columns,
    message_parts,
    payload_decoder,
    payload_of,
)
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.message import Message

_EMPTY_BLOCK: Final = b'{"schema":{},"payload":'
_Unique: Final[Any] = dict[str, str | int | bool | None]


class MemberLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`.

    Raises:
        ValueError: The member has no plain messages.
    """

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(self, reader: MemberReader) -> None:
        member = reader.member
        if member.plain is None:
            raise ValueError
        self._reader = reader
        self._plain = member.plain
        self._place_of = attrgetter(*member.place)
        fields = [(name, str | None, None) for name in member.place]
        source = msgspec.defstruct("ProbeSource", fields, gc=False)
        probe: Any = msgspec.defstruct("Probe", [("source", source)], gc=False)
        self._probe: Callable[[Any], Any] = msgspec.json.Decoder(probe).decode

    def identity(self, value: bytes) -> Hashable | None:
        """Return the plan of a message's schema block and the place of its source block."""
        try:
            plan, payload, _ = _payload_of(value, self._reader)
            return plan, self._place_of(self._probe(payload).source)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def open(self, message: Message, change: DataChange) -> "MemberLane":
        """Return the lane of a message that was decoded into one change."""
        return MemberLane(self._reader, self._plain, message, change)


class MemberLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        MsgspecError: The message is not plain.
    """

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None

    def __init__(
        self, reader: MemberReader, plain: PlainForm, message: Message, change: DataChange
    ) -> None:
        plan, payload, self._prefix = _payload_of(message.value or b"", reader)
        self._member = reader.member
        self._plain = plain
        self._envelope: Any = plan.envelope(payload)
        self._envelope_fields = tuple(message_parts(payload))
        self._source_fields = tuple(message_parts(message_parts(payload)["source"]))
        is_delete = change.op is Op.DELETE
        row = self._envelope.before if is_delete else self._envelope.after
        if not row or plan.schema is not change.schema:
            raise NotPlainError
        self._is_snapshot = change.source.snapshot is not None
        self.columns = columns = lane_columns(plan, row)
        self.is_named = is_named = plan.schema is None
        self._unique: tuple[str, ...] | None = None
        self._key = None
        if plain.unique is not None and getattr(self._envelope, plain.unique):
            self._unique = tuple(getattr(self._envelope, plain.unique))
        else:
            self._key = key_form(
                reader.keys,
                message.key,
                row,
                columns=columns,
                plan=plan,
                key=change.key,
                is_named=is_named,
            )
        self._images = PlainImages(
            columns,
            plan,
            self._member.placeholder,
            None if change.key is None else change.key.columns,
            before_image=plain.before_image,
            has_fillers=change.source.product in plain.filler_products,
            is_named=is_named,
        )
        self.deleted_columns = self._images.deleted_columns

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        return self._compiled(row, "None, False")

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events, all of which have details (:class:`EventLane`).

        Raises:
            NotPlainError: Events of the member may have no details.
        """
        del has_positions  # a message has the whole position
        if self._plain.detail is None:
            raise NotPlainError
        return self._compiled(
            row,
            f"None if envelope.ts_ms is None else envelope.ts_ms * {MILLISECOND}, True",
            f"if source.{self._plain.detail} is None: return None",
        )

    def _compiled(self, row: Any, parts: str, *checks: str) -> ReadChange:
        """Return the reader of messages that returns these last parts, after some checks."""
        member, unique = self._member, self._unique
        names: dict[str, Any] = {
            "decode": self._decode(row),
            "unique": unique,
            "position_of": member.position_of,
            "transaction_of": member.transaction_of,
            "time_of": member.source_time_ns,
        }
        created = "r" if member.has_snapshot_creates and self._is_snapshot else "c"
        check = self._images.check(
            self._key, names, created=created, ignores_key=unique is not None
        )
        lines = ["def function(value, key):", " envelope = decode(value)"]
        if unique is not None:
            lines.append(f" if tuple(envelope.{self._plain.unique}) != unique: return None")
        lines += [
            " op, before, after = envelope.op, envelope.before, envelope.after",
            *(f" {line}" for line in check),
            " source = envelope.source",
            *(f" {check}" for check in checks),
            " position, transaction = position_of(source), transaction_of(source)",
            f" return op, before, after, position, transaction, None, time_of(source), {parts}",
        ]
        read: ReadChange = compiled_function(lines, names)
        return read

    def _decode(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        if not self._plain.is_empty_object:
            decode = self._decoder(row, row)
            return payload_decoder(decode, self._prefix)
        none = msgspec.defstruct("NoImage", [], forbid_unknown_fields=True, gc=False)
        insert, delete, update = (
            payload_decoder(self._decoder(*images), self._prefix)
            for images in ((none, row), (row, none), (row, row))
        )
        start = len(self._prefix)

        def decode_images(value: bytes) -> Any:
            if value.find(b'"before":{}', start) >= 0:
                envelope = insert(value)
                envelope.before = None
            elif value.find(b'"after":{}', start) >= 0:
                envelope = delete(value)
                envelope.after = None
            else:
                envelope = update(value)
            return envelope

        return decode_images

    def _decoder(self, before: Any, after: Any) -> Callable[[Any], Any]:
        """Return the decoder of a payload with these classes of images."""
        kinds = _kinds_of(self._envelope)
        kinds.update((name, literal(value)) for name, value in self._plain.fixed.items())
        if self._plain.unique is not None:
            kinds[self._plain.unique] = (None, None) if self._unique is None else (_Unique,)
        source = self._envelope.source
        source_kinds = _kinds_of(source)
        source_kinds.update((name, literal(getattr(source, name))) for name in self._member.place)
        kinds |= {
            "op": (OPS,),
            "source": (class_of("PlainSource", source_kinds, self._source_fields),),
            "before": (before | None, None),
            "after": (after | None, None),
        }
        envelope = class_of("PlainEnvelope", kinds, self._envelope_fields)
        return msgspec.json.Decoder(envelope, float_hook=decimal.Decimal).decode


def _payload_of(value: bytes, reader: MemberReader) -> tuple[RowPlan, Any, bytes]:
    """Return the plan, the payload and the bytes before the payload of a message.

    Raises:
        NotPlainError: The plan of the schema block is not cached.
    """
    if value.startswith(_EMPTY_BLOCK):
        return reader.plain, memoryview(value)[len(_EMPTY_BLOCK) : -1], _EMPTY_BLOCK
    return payload_of(value, reader.plain, reader.blocks)


def _kinds_of(message: Any) -> Kinds:
    """Return the types and defaults of the fields of a wire class."""
    return {
        field.name: (field.type,) if field.required else (field.type, field.default)
        for field in msgspec.structs.fields(message)
    }
