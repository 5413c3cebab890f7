# SPDX-License-Identifier: Apache-2.0
"""How long a continuous run waits between batches, so that files do not stay small.

A commit costs the same for ten rows as for thousands, and leaves a file. Where little comes, a run
that is allowed to waits until a batch is worth its commit.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from changelane.formats.contract.options import seconds
from changelane.pipeline.options import Options
from changelane.spark.run.query import Query, Starter, stop

TICK_S: Final = 5
"""How often tables are looked at that wait for a time, seconds."""
LOOK_S: Final = 1
"""How often it is looked whether somebody wants to stop."""


class Pace(NamedTuple):
    """When the next batch begins.

    Attributes:
        least_s: How many seconds lie between the beginnings of two batches at least,
        most_s: and at most: no change waits longer.
        events: How many events make a batch worth its commits.
    """

    least_s: float
    most_s: float
    events: int

    @classmethod
    def of(cls, options: Options) -> Self | None:
        """Return the pace that options ask for; ``None`` = Spark's own trigger keeps it."""
        if options.trigger != "continuous" or options.max_interval is None:
            return None
        least_s = options.interval_ms / 1000
        return cls(least_s, seconds(options.max_interval), options.merge_events)

    def interval_s(self, events: int, past_s: float) -> float:
        """Return how long after the beginning of a batch the next one begins, seconds.

        Args:
            events: How many events the batch held.
            past_s: For how many seconds they had come: since the batch before it began.
        """
        if events <= 0:
            return self.most_s
        return min(max(self.events / events * past_s, self.least_s), self.most_s)


def drive(
    stream: Starter,
    pace: Pace | None,
    events: Callable[[], int],
    tick: Callable[[], None],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Run a stream to its end; with a pace, start it again and again.

    Args:
        stream: What starts it, from where it stopped.
        pace: When it is started again.
        events: Returns how many events have come so far.
        tick: Called every few seconds, between batches and within them.
        check: Called more often: it raises what is to stop the stream.
    """
    past_s = 0.0
    while True:
        began, before = time.monotonic(), events()
        await_end(stream.start(), tick, check)
        if pace is None:
            return
        wait_s = pace.interval_s(events() - before, past_s or pace.least_s)
        pause(began + wait_s - time.monotonic(), tick, check)
        past_s = time.monotonic() - began


def await_end(query: Query, tick: Callable[[], None], check: Callable[[], None]) -> None:
    """Wait for the end of a stream, or stop it; meanwhile do what :func:`drive` says."""
    ticked = time.monotonic()
    try:
        while not query.awaitTermination(LOOK_S):
            check()
            if time.monotonic() - ticked >= TICK_S:
                tick()
                ticked = time.monotonic()
    except BaseException:
        stop(query)
        raise


def pause(
    wait_s: float, tick: Callable[[], None], check: Callable[[], None] = lambda: None
) -> None:
    """Wait so many seconds, and do what :func:`drive` says meanwhile."""
    until = time.monotonic() + wait_s
    ticked = time.monotonic()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_S))
        check()
        if time.monotonic() - ticked >= TICK_S:
            tick()
            ticked = time.monotonic()
