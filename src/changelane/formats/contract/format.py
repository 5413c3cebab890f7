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


class Framing(Protocol):
    """Frames messages with the id of their schema in a registry."""

    def frame(self, message: Message) -> Message:
        """Return a message in the serde of the registry, which may register its schema.

        Args:
            message: A message as the format encodes it, with the topic to which it is written: the
                topic names the subject of the schema.

        Raises:
            EncodeError: The message has no topic, or no form in the serde.
            UnreachableError: The registry does not answer, or rejects the schema.
        """
        ...

    def check(self, message: Message) -> None:
        """Check whether a message has a form in the serde; no schema is registered.

        Raises:
            EncodeError: As :meth:`frame` does.
            UnreachableError: The registry does not answer, or lacks a schema that must exist.
        """
        ...


class Format(Protocol):
    """One envelope. Implementations are frozen, picklable and thread-safe.

    A format's ``decode`` and ``encode`` are pure: the same message always gives the same events.
    A format may have an attribute ``lanes`` (:class:`~changelane.formats.contract.lane.Lanes`), and
    one ``row_writing`` (:data:`~changelane.formats.contract.row_writing.WritingOf`). A format whose
    messages depend on earlier ones has a method ``open_stream() -> StreamDecoder``. One whose
    messages are framed for a registry has an attribute ``framing`` (:class:`Framing`); its
    ``encode`` returns them without.
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
