# SPDX-License-Identifier: Apache-2.0
"""The interval between the batches of a continuous run, so that files do not stay small.

A commit costs the same for ten rows as for thousands, and writes a file. With few events a run
may wait until a batch is worth its commit.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from changelane.formats.contract.options import seconds
from changelane.pipeline.options import Options
from changelane.spark.run.query import RunningQuery, Stream, stop_query

TICK_INTERVAL_S: Final = 5
"""The interval of checks for tables with a due merge, seconds."""
CHECK_INTERVAL_S: Final = 1
"""The interval of checks for an interrupt, seconds."""


class AdaptiveTrigger(NamedTuple):
    """Computes the start of the next batch.

    Attributes:
        min_interval_s: The minimum seconds between the starts of two batches.
        max_interval_s: The maximum seconds between them: no change waits longer.
        target_events: The number of events that make a batch worth its commits.
    """

    min_interval_s: float
    max_interval_s: float
    target_events: int

    @classmethod
    def of(cls, options: Options) -> Self | None:
        """Return the trigger of the options; ``None`` = Spark's own trigger is used."""
        if options.trigger != "continuous" or options.max_interval is None:
            return None
        min_interval_s = options.interval_ms / 1000
        return cls(min_interval_s, seconds(options.max_interval), options.merge_events)

    def interval_s(self, event_count: int, elapsed_s: float) -> float:
        """Return the seconds from the start of a batch to the start of the next one.

        Args:
            event_count: The number of events in the batch.
            elapsed_s: The seconds in which they arrived: from the start of the previous batch.
        """
        if event_count <= 0:
            return self.max_interval_s
        return min(
            max(self.target_events / event_count * elapsed_s, self.min_interval_s),
            self.max_interval_s,
        )


def run_stream(
    stream: Stream,
    adaptive_trigger: AdaptiveTrigger | None,
    event_count: Callable[[], int],
    on_tick: Callable[[], None],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Run a stream to its end; with a trigger, start it again and again.

    Args:
        stream: The stream; it starts after its last complete batch.
        adaptive_trigger: The trigger of the next start; ``None`` = run once.
        event_count: Returns the number of events so far.
        on_tick: Called every :data:`TICK_INTERVAL_S`, between batches and within them.
        check: Called every :data:`CHECK_INTERVAL_S`; it raises to stop the stream.
    """
    elapsed_s = 0.0
    while True:
        start_s, count_before = time.monotonic(), event_count()
        await_end(stream.start(), on_tick, check)
        if adaptive_trigger is None:
            return
        wait_s = adaptive_trigger.interval_s(
            event_count() - count_before, elapsed_s or adaptive_trigger.min_interval_s
        )
        wait_until_next(start_s + wait_s - time.monotonic(), on_tick, check)
        elapsed_s = time.monotonic() - start_s


def await_end(query: RunningQuery, on_tick: Callable[[], None], check: Callable[[], None]) -> None:
    """Wait for the end of a stream with the callbacks of :func:`run_stream`; stop it on errors."""
    last_tick_s = time.monotonic()
    try:
        while not query.awaitTermination(CHECK_INTERVAL_S):
            check()
            if time.monotonic() - last_tick_s >= TICK_INTERVAL_S:
                on_tick()
                last_tick_s = time.monotonic()
    except BaseException:
        stop_query(query)
        raise


def wait_until_next(
    wait_s: float, on_tick: Callable[[], None], check: Callable[[], None] = lambda: None
) -> None:
    """Wait for some seconds with the callbacks of :func:`run_stream`."""
    deadline = time.monotonic() + wait_s
    last_tick_s = time.monotonic()
    while (remaining_s := deadline - time.monotonic()) > 0:
        time.sleep(min(remaining_s, CHECK_INTERVAL_S))
        check()
        if time.monotonic() - last_tick_s >= TICK_INTERVAL_S:
            on_tick()
            last_tick_s = time.monotonic()
