# SPDX-License-Identifier: Apache-2.0
"""The interface of stateful transforms: events to events, over one stream."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from changelane.event import ChangeEvent


class StatefulTransform(Protocol):
    """A step between decoding and encoding; one instance per stream, which may buffer events."""

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Add an event; return the events that are released, in order."""
        ...

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Return the buffered events, at the end of the stream or at a checkpoint."""
        ...


def run(transform: StatefulTransform, events: Iterable[ChangeEvent]) -> Iterator[ChangeEvent]:
    """Yield the events of a stream after a transform."""
    for event in events:
        yield from transform.push(event)
    yield from transform.flush()
