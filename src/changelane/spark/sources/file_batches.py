# SPDX-License-Identifier: Apache-2.0
"""Runs the batches of a ``files`` source, as Spark runs the batches of its streams."""

import re
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from changelane.formats.contract.options import seconds
from changelane.pipeline.options import Options
from changelane.spark.sources.file_reader import ReadingError
from changelane.spark.sources.files import FilesInput
from changelane.spark.state.file_log import Files

Apply = Callable[[Files, int], None]
_READING_ERROR: Final = re.compile(rf"{ReadingError.__name__}: (.*)")
_MILLISECONDS: Final = re.compile(r"(.*\D)?\b([0-9]+)\s*milliseconds?")
_LOOK_S: Final = 1.0
"""The interval between two attempts to cancel the jobs, seconds."""


class FileStream:
    """A stream of files, which starts after its last complete batch.

    Args:
        spark: The session.
        source: The files.
        name: The description of the Spark jobs.
        options: The trigger and the interval.
        apply: Applies a batch.
    """

    def __init__(
        self, spark: SparkSession, source: FilesInput, name: str, options: Options, apply: Apply
    ) -> None:
        self._spark = spark
        self._source = source
        self._name = name
        self._apply = apply
        is_once = options.trigger == "available_now" or options.max_interval is not None
        self._interval_s = None if is_once else interval_s(options.interval)

    def start(self) -> "FileQuery":
        """Start a stream."""
        return FileQuery(self._spark, self._name, self._run)

    def _run(self, stopped: threading.Event) -> None:
        source = self._source
        if (pending := source.file_log.pending) is not None:
            self._apply_batch(pending.files, pending.number)
        while not stopped.is_set():
            began = time.monotonic()
            for batch in source.batches(source.unread_files()):
                if stopped.is_set():
                    return
                self._apply_batch(
                    batch, source.file_log.start_batch(batch, int(time.time() * 1000))
                )
                if self._interval_s is not None:
                    break
            if self._interval_s is None:
                return
            stopped.wait(max(0.0, began + self._interval_s - time.monotonic()))

    def _apply_batch(self, files: Files, number: int) -> None:
        """Apply a batch, and retry it without files that can never be read."""
        try:
            self._apply(files, number)
        except Exception as error:
            if match := _READING_ERROR.search(str(error)):
                raise ReadingError(match[1]) from error
            if not self._source.reject_unreadable(files):
                raise
            self._apply(files, number)
        self._source.file_log.complete_batch()
        self._source.clean(files)


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


class FileQuery:
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
