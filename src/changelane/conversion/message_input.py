# SPDX-License-Identifier: Apache-2.0
"""The interface of the inputs of a conversion: the lines of a file, a topic, a data file."""

from collections.abc import Iterator
from typing import Protocol

from changelane.conversion.message_files import Content, LineFormat


class Block(Protocol):
    """Consecutive messages of an input. It is picklable."""

    @property
    def number(self) -> int:
        """The number of the first message, from 1."""
        ...

    @property
    def form(self) -> LineFormat | None:
        """The line format of the output, unless an option sets it; ``None`` = unknown."""
        ...

    def contents(self) -> Iterator[Content]:
        """Yield the messages, or the errors in their place."""
        ...


class MessageInput(Protocol):
    """The messages of an input."""

    def blocks(self) -> Iterator[Block]:
        """Yield the messages in blocks.

        Raises:
            DecodeError: The rest of the input cannot be read.
        """
        ...


class OpenedInput(Protocol):
    """An opened input.

    Attributes:
        size: Its size in the unit of :meth:`position`, if known.
    """

    size: int | None

    def position(self) -> int:
        """Return the part of the size that was read."""
        ...

    def is_ready(self) -> bool:
        """Whether a read returns at once."""
        ...
