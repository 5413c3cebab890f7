# SPDX-License-Identifier: Apache-2.0
"""The interface of formats: messages to canonical events and back."""

from collections.abc import Callable
from typing import Protocol

from changelane.event import ChangeEvent
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.losses import Loss
from changelane.message import Message

Report = Callable[[Loss], None]


class StreamDecoder(Protocol):
    """Decodes the messages of one stream in their order; it keeps state between them."""

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode the next message.

        Raises:
            DecodeError: The message is not of this format, or depends on one that is missing.
        """
        ...


class Format(Protocol):
    """One envelope. Implementations are frozen, picklable and thread-safe.

    A format's ``decode`` and ``encode`` are pure: the same message always gives the same events.
    A format may have an attribute ``lanes`` (:class:`~changelane.formats.contract.lane.Lanes`), and
    one ``row_writing`` (:data:`~changelane.formats.contract.row_writing.WritingOf`). A format whose
    messages depend on earlier ones has a method ``open_stream() -> StreamDecoder``.
    """

    @property
    def carries(self) -> Carries:
        """The capabilities of this format, with its options as they are set."""
        ...

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message into its events: none, one or many.

        Raises:
            DecodeError: The message is not of this format. No event is returned then.
        """
        ...

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event into its messages: one or many.

        Args:
            event: An event that is reduced to :attr:`carries`.
            report: Called for each loss that depends on a value, such as a number out of range.

        Raises:
            EncodeError: The event cannot be encoded.
        """
        ...

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like this format: a guess, for ``changelane inspect``."""
        ...
