# SPDX-License-Identifier: Apache-2.0
"""The wire classes of Debezium's messages about MongoDB, and its messages that are no changes."""

import decimal
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent
from changelane.formats.contract import json
from changelane.formats.debezium_envelope import other_events
from changelane.formats.debezium_envelope.rows.connect_schema import unwrap
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.message import Message

Row = dict[str, Any]
"""Names and JSON values."""


class UpdateDescription(msgspec.Struct, gc=False):
    """The object ``updateDescription``: the changed fields of a document."""

    removedFields: list[str] | None = None  # noqa: N815 - the producer's name
    updatedFields: str | None = None  # noqa: N815 - the producer's name
    truncatedArrays: list[Row] | None = None  # noqa: N815 - the producer's name


class Envelope(msgspec.Struct, gc=False):
    """A change."""

    op: str
    source: Row
    before: str | None = None
    after: str | None = None
    updateDescription: UpdateDescription | None = None  # noqa: N815 - the producer's name
    ts_ms: int | None = None
    transaction: Row | None = None


class _Named(msgspec.Struct):
    """A schema block."""

    name: str | None = None


_decode: Final = msgspec.json.Decoder(Envelope, float_hook=decimal.Decimal).decode
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def load(value: bytes) -> Envelope | None:
    """Return the change in a message, with or without its schema; ``None`` if it has none.

    Raises:
        DecodeError: The bytes are no JSON object, or the change lacks a field.
    """
    try:
        return _decode(value)
    except (ValueError, RecursionError, decimal.DecimalException):
        pass  # the slow path reads the message, or raises the error
    fields = json.loads(value, Row)
    payload = fields.get("payload")
    path = "$"
    if isinstance(payload, dict) and "op" not in fields:
        fields, path = payload, "$.payload"
    return json.convert(fields, Envelope, path) if "op" in fields else None


def other_messages(message: Message, value: bytes) -> tuple[ChangeEvent, ...]:
    """Return the events of a message that is no change: a heartbeat, a transaction's border ...

    Raises:
        DecodeError: The message is not one of Debezium's.
    """
    wrapped = unwrap(value)
    block, payload = (None, value) if wrapped is None else wrapped
    plan = RowPlan(None, None)
    if block is not None:
        try:
            plan.label = json.loads(block, _Named).name or ""
        except DecodeError as error:
            path = error.path.replace("$", "$.schema", 1)
            raise DecodeError(error.reason, code=error.code, path=path) from None
    parts = other_events.loads(_PARTS, payload)
    return other_events.decode(message, parts, block, plan, payload)
