# SPDX-License-Identifier: Apache-2.0
"""The format class of the family: a member is its options, a decoder and an encoder."""

from collections.abc import Callable
from typing import Generic, TypeVar

from changelane.errors import DecodeError
from changelane.event import ChangeEvent
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.lane import Lanes
from changelane.formats.contract.row_writing import WritingOf
from changelane.formats.debezium_envelope.details_check import (
    Read,
    Write,
    encode_with_checked_details,
)
from changelane.message import Message

Options = TypeVar("Options")


class MemberFormat(Generic[Options]):
    """A member of the family.

    Attributes:
        carries: What the format can express, with its options.
        decode: Reads a message. The attribute is the reader's own method, which saves a call.
        lanes: The lanes of plain row changes, if the format has lanes.
        row_writing: How plain row changes are written, if the format states it.
    """

    def __init__(
        self,
        make: Callable[[Options], Format],
        options: Options,
        *,
        carries: Carries,
        decode: Read,
        encode: Write,
        may_match: Callable[[bytes], bool],
        lanes: Lanes | None = None,
        unwrap: Callable[[Message], Message | None] | None = None,
        row_writing: WritingOf | None = None,
    ) -> None:
        """Create the format.

        Args:
            make: The function that makes the format of its options, for pickle.
            options: The options.
            carries: What the format can express.
            decode: Reads a message.
            encode: Writes an event.
            may_match: Returns whether a value may be of this format: a fast check before decoding.
                It may raise :class:`~changelane.errors.DecodeError`.
            lanes: The lanes of plain row changes.
            unwrap: Returns the message of the format in another envelope, such as CloudEvents;
                ``None`` if there is none. *decode* reads such messages, too.
            row_writing: How plain row changes are written.
        """
        self._make = make
        self._options = options
        self.carries = carries
        self.decode = decode
        self._encode = encode
        self._may_match = may_match
        self._unwrap = unwrap
        self.lanes = lanes
        self.row_writing = row_writing

    def __reduce__(self) -> tuple[object, ...]:
        return self._make, (self._options,)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Write an event."""
        return encode_with_checked_details(self._encode, self.decode, event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message is of this format."""
        try:
            inner = None if self._unwrap is None else self._unwrap(message)
            value = (inner or message).value
            if not value:
                return False
            return self._may_match(value) and bool(self.decode(message))
        except DecodeError:
            return False
