# SPDX-License-Identifier: Apache-2.0
"""The interface of formats: messages to canonical events and back."""

from collections.abc import Callable
from typing import Protocol

from changelane.event import ChangeEvent
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.losses import Loss
from changelane.message import Message

Report = Callable[[Loss], None]


class Format(Protocol):
    """One envelope. Implementations are frozen, picklable and thread-safe.

    A format's ``decode`` and ``encode`` are pure: the same message always gives the same events.
    """

    @property
    def carries(self) -> Carries:
        """What this format can express, with its options as they are set."""
        ...

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Read a message; one message may tell no, one or many events.

        Raises:
            DecodeError: The message is not of this format. Never a partial result.
        """
        ...

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Write an event that was reduced to :attr:`carries`; one event may take many messages.

        Args:
            event: The reduced event.
            report: Called for each loss that only shows while writing (a value out of range).

        Raises:
            EncodeError: The event cannot be written at all.
        """
        ...

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like this format: a guess for people."""
        ...
