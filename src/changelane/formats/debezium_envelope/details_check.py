# SPDX-License-Identifier: Apache-2.0
"""The check of details that a reader of this family did not make.

A reader keeps fields without a place in the model in an event's details, and the writer of the same
format writes them again unchecked. An event from ``native-json`` may have any content under these
names, so its messages are read back.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import NO_DETAILS, ChangeEvent, DataChange, HalfUpdate
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import Loss
from changelane.formats.debezium_envelope.blocks import FIELD_TYPES
from changelane.message import Message

Write = Callable[[ChangeEvent, Report], tuple[Message, ...]]
Read = Callable[[Message], tuple[ChangeEvent, ...]]

_INT64: Final = 1 << 63
_ERRORS: Final = (
    *(DecodeError, msgspec.ValidationError, UnicodeError, RecursionError),
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError),
)
_LOSS: Final[Loss] = ("details", "content that the format cannot read again; not written")


def encode_with_checked_details(
    write: Write, read: Read, event: ChangeEvent, report: Report
) -> tuple[Message, ...]:
    """Encode an event, without its details if a reader would reject the messages.

    Raises:
        EncodeError: The event cannot be encoded.
    """
    change = event.change if isinstance(event, HalfUpdate) else event
    details = change.details
    if not details or _is_usual(details, change):
        return write(event, report)
    losses: list[Loss] = []
    try:
        messages = write(event, losses.append)
        decoded = [event for message in messages for event in read(message)]
        if isinstance(event, DataChange) and not any(map(_is_row, decoded)):
            raise ValueError  # the details make it another kind of message
    except _ERRORS:
        report(_LOSS)
        return write(_without(event), report)
    for loss in losses:
        report(loss)
    return messages


def _is_usual(details: Mapping[str, Any], event: ChangeEvent) -> bool:
    """Return whether the details have only known source fields, as those of most messages do."""
    if len(details) != 1 or type(block := details.get("source")) is not dict:
        return False
    source = getattr(event, "source", None)
    types = None if source is None else FIELD_TYPES.get(source.product)
    if types is None:
        return False
    for name, value in block.items():
        kind = types.get(name)
        if type(value) is int:
            if kind != "int64" or not -_INT64 <= value < _INT64:
                return False
        elif type(value) is not str or kind != "string":
            return False
    return True


def _is_row(event: ChangeEvent) -> bool:
    return isinstance(event, DataChange | HalfUpdate)


def _without(event: ChangeEvent) -> ChangeEvent:
    if isinstance(event, HalfUpdate):
        change = msgspec.structs.replace(event.change, details=NO_DETAILS)
        return msgspec.structs.replace(event, change=change)
    return msgspec.structs.replace(event, details=NO_DETAILS)
