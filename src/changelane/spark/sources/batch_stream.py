# SPDX-License-Identifier: Apache-2.0
"""Runs the batches of a source that Spark does not stream, as Spark runs those of its streams."""

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, runtime_checkable

from pyspark.sql import SparkSession

from changelane.formats.contract.options import seconds
from changelane.pipeline.options import Options
from changelane.spark.sources.file_reader import ReadingError
from changelane.spark.sources.interface import Input

Apply = Callable[[Any, int], None]
_READING_ERROR: Final = re.compile(rf"{ReadingError.__name__}: (.*)")
_MILLISECONDS: Final = re.compile(r"(.*\D)?\b([0-9]+)\s*milliseconds?")
_LOOK_S: Final = 1.0
"""The interval between two attempts to cancel the jobs, seconds."""


@runtime_checkable
class BatchedInput(Input, Protocol):
    """An input whose batches changelane determines and records itself."""

    def pending_batch(self) -> tuple[Any, int] | None:
        """Return the batch that started and did not complete, with its number."""
        ...

    def new_batches(self) -> Iterator[Any]:
        """Yield the batches of what no batch has read, in order."""
        ...

    def start_batch(self, batch: Any) -> int:
        """Record a batch before it runs; return its number."""
        ...

    def complete_batch(self, batch: Any) -> None:
        """Record that the newest batch is complete."""
        ...

    def reject_unreadable(self, batch: Any) -> bool:
        """Return whether a failed batch has parts that can never be read; a retry skips them."""
        ...


class BatchStream:
    """A stream of batches, which starts after its last complete batch.

    Args:
        spark: The session.
        source: The input.
        name: The description of the Spark jobs.
        options: The trigger and the interval.
        apply: Applies a batch.
    """

    def __init__(
        self, spark: SparkSession, source: BatchedInput, name: str, options: Options, apply: Apply
    ) -> None:
        self._spark = spark
        self._source = source
        self._name = name
        self._apply = apply
        is_once = options.trigger == "available_now" or options.max_interval is not None
        self._interval_s = None if is_once else interval_s(options.interval)

    def start(self) -> "BatchQuery":
        """Start a stream."""
        return BatchQuery(self._spark, self._name, self._run)

    def _run(self, stopped: threading.Event) -> None:
        source = self._source
        if (pending := source.pending_batch()) is not None:
            self._apply_batch(*pending)
        while not stopped.is_set():
            began = time.monotonic()
            for batch in source.new_batches():
                if stopped.is_set():
                    return
                self._apply_batch(batch, source.start_batch(batch))
                if self._interval_s is not None:
                    break
            if self._interval_s is None:
                return
            stopped.wait(max(0.0, began + self._interval_s - time.monotonic()))

    def _apply_batch(self, batch: Any, number: int) -> None:
        """Apply a batch, and retry it without parts that can never be read."""
        try:
            self._apply(batch, number)
        except Exception as error:
            if match := _READING_ERROR.search(str(error)):
                raise ReadingError(match[1]) from error
            if not self._source.reject_unreadable(batch):
                raise
            self._apply(batch, number)
        self._source.complete_batch(batch)


def interval_s(text: str) -> float:
    """Return the seconds of an interval, which can contain milliseconds, as in Spark.

    >>> interval_s("10 seconds"), interval_s("1 second 500 milliseconds")
    (10, 1.5)

    Raises:
        ValueError: The text is not an interval.
    """
    if (match := _MILLISECONDS.fullmatch(text.strip())) is None:
        return seconds(text)
    return (seconds(match[1].strip()) if match[1] else 0) + int(match[2]) / 1000


class BatchQuery:
    """A running stream, in a thread, with methods of Spark's ``StreamingQuery``.

    Args:
        spark: The session.
        name: The description of the Spark jobs.
        run_batches: Runs the batches until the event is set.
    """

    def __init__(
        self, spark: SparkSession, name: str, run_batches: Callable[[threading.Event], None]
    ) -> None:
        self._context = spark.sparkContext
        self._name = name
        self._group = str(uuid.uuid4())
        self._run_batches = run_batches
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._name, interruptOnCancel=True)
            self._run_batches(self._stopped)
        except Exception as error:  # noqa: BLE001 - awaitTermination raises it
            self._error = error

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802 - Spark's name
        """Wait for the end of the stream; return whether it ended within the timeout, seconds.

        Raises:
            Exception: The error that ended the stream.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Stop the stream; the next start repeats the incomplete batch."""
        self._stopped.set()
        while self._thread.is_alive():
            self._context.cancelJobGroup(self._group)
            self._thread.join(_LOOK_S)
