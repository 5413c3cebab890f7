# SPDX-License-Identifier: Apache-2.0
"""The interface of transforms: events to events, over one stream."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from changelane.event import ChangeEvent


class StatefulTransform(Protocol):
    """A step between reading and writing; an instance serves one stream and may hold events."""

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Take an event and return those that may go on, in order."""
        ...

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Return what was held back: the stream is at its end, or at a checkpoint."""
        ...


def run(transform: StatefulTransform, events: Iterable[ChangeEvent]) -> Iterator[ChangeEvent]:
    """Send a whole stream through a transform."""
    for event in events:
        yield from transform.push(event)
    yield from transform.flush()
