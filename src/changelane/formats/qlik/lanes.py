# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``qlik-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a data message with the table, the schema id and the mask of the lane, with or
without the envelope as the lane. Its images have all columns. The table is named by the message,
the schema id or the topic, and not by a column.
"""

from typing import Any, Final

import msgspec

from changelane.event import Completeness, DataChange, Op
from changelane.formats.contract.declared_tables import DeclaredTable
from changelane.formats.contract.lane import NotPlainError, PlainChange, ReadChange
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.qlik.decode import (
    OPERATIONS,
    Reader,
    details_of,
    images_of,
    is_complete_row,
    mask_of,
    position_of,
    source_of,
    time_of,
    transaction_of,
)
from changelane.formats.qlik.wire import (
    DataEnvelope,
    DataMessage,
    Loaded,
    decoder,
    envelope_fields,
    has_envelope,
)
from changelane.message import Message

_FULL: Final = Completeness.FULL
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE


class _Headers(msgspec.Struct, gc=False):
    operation: str
    columnMask: str | None = None  # noqa: N815 - the producer's name


class _ProbedMessage(msgspec.Struct, gc=False):
    headers: _Headers
    data: dict[str, msgspec.Raw] | None = None
    beforeData: dict[str, msgspec.Raw] | None = None  # noqa: N815 - the producer's name
    schema: str | None = None
    table: str | None = None


class _ProbedEnvelope(msgspec.Struct, gc=False):
    message: _ProbedMessage
    messageSchemaId: str | None = None  # noqa: N815 - the producer's name


_bare: Final = msgspec.json.Decoder(_ProbedMessage).decode
_enveloped: Final = msgspec.json.Decoder(_ProbedEnvelope).decode


class _Identity(msgspec.Struct, frozen=True):
    """The parts of a message that all messages of a lane share."""

    has_envelope: bool
    schema_id: str | None
    schema: str | None
    table: str | None
    mask: str | None
    operation: str | None
    names: tuple[str, ...]


def _identity_of(value: bytes) -> _Identity:
    is_in_envelope, schema_id = has_envelope(value), None
    if is_in_envelope:
        envelope = _enveloped(value)
        message, schema_id = envelope.message, envelope.messageSchemaId
    else:
        message = _bare(value)
    names, mask = tuple(message.data or message.beforeData or ()), message.headers.columnMask
    op = OPERATIONS[message.headers.operation]
    # rows of a full load have another source, and updates with a mask may lack columns
    is_alone = op is Op.READ or (op is _UPDATE and mask)
    operation = op.value if is_alone else None
    return _Identity(
        is_in_envelope, schema_id, message.schema, message.table, mask, operation, names
    )


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        if reader.options.column:
            raise NotPlainError  # the name of the table is in the row
        identity = _identity_of(message.value or b"")
        declared = reader.declared.find(change.table)
        _check_mask(identity, declared)
        return UntypedLane(
            change,
            declared,
            lambda event_form: _reader(identity, change, event_form),
            has_whole_before=is_complete_row(mask_of(identity.mask, "$"), identity.names),
        )

    return ProbedLanes(_identity_of, open_lane)


def _check_mask(identity: _Identity, declared: DeclaredTable | None) -> None:
    """Check that the rows of a declared table have all columns.

    Raises:
        NotPlainError: The mask lacks a column.
    """
    mask = mask_of(identity.mask, "$")
    if declared is None or mask is None:
        return
    columns = (1 << len(declared.schema.columns)) - 1
    if mask & columns != columns:
        raise NotPlainError


def _reader(identity: _Identity, opened: DataChange, event_form: EventForm) -> ReadChange:
    schema, table, mask = identity.schema, identity.table, identity.mask
    schema_id, is_in_envelope = identity.schema_id, identity.has_envelope
    source, names, has_details = opened.source, event_form.names, event_form.has_details
    has_all = names is None or is_complete_row(mask_of(mask, "$"), names)
    is_partial = opened.op is _UPDATE and not has_all
    decode_message, decode_envelope = _decoders(event_form)
    key_values = event_form.values_of(() if opened.key is None else opened.key.columns)

    def read(value: bytes, _key: bytes | None) -> PlainChange | None:
        if has_envelope(value) is not is_in_envelope:
            return None
        envelope: Any = None
        if is_in_envelope:
            envelope = decode_envelope(value)
            if envelope.messageSchemaId != schema_id:
                return None
            message = envelope.message
        else:
            message = decode_message(value)
        headers = message.headers
        if message.table != table or message.schema != schema or headers.columnMask != mask:
            return None
        op = OPERATIONS[headers.operation]
        if source_of(op) is not source or (op is _UPDATE and not has_all) is not is_partial:
            return None
        row: Any
        row, before = images_of(op, message, "$")
        if names is not None:
            if tuple(row) != names or (before is not None and tuple(before) != names):
                return None
        elif None in key_values(row):
            return None
        details: dict[str, Any] = {}
        if has_details:
            fields = {} if envelope is None else envelope_fields(envelope)
            details = details_of(Loaded(message, fields, {}, {}), headers)
        position = position_of(headers, details, "$")
        transaction = transaction_of(headers, details)
        time = time_of(headers.timestamp, "$")
        if op is _DELETE:
            before, row = row, None
        return (
            op._value_,
            before,
            row,
            position,
            transaction,
            None,
            time,
            None,
            has_details and bool(details),
        )

    return read


def _decoders(event_form: EventForm) -> tuple[Any, Any]:
    """Return the decoders of messages without and with the envelope."""
    if event_form.names is not None:
        return decoder(DataMessage), decoder(DataEnvelope)
    images = [(name, event_form.row | None, None) for name in ("data", "beforeData")]
    message = msgspec.defstruct(
        "PlainMessage", images, bases=(DataMessage,), forbid_unknown_fields=True
    )
    envelope = msgspec.defstruct(
        "PlainEnvelope",
        [("message", message)],
        bases=(DataEnvelope,),
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return decoder(message), decoder(envelope)
