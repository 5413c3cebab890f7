# SPDX-License-Identifier: Apache-2.0
"""The code that the streams of all pipelines share: input, start, and failure."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, Self, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from changelane.capture.engine import CaptureError
from changelane.errors import BudgetError, ChangelaneError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.error_budget import over_budget_text
from changelane.pipeline.options import Options
from changelane.spark.run.interrupts import InterruptedRunError, Interrupts
from changelane.spark.runtime.disk_space import full_disk_sentence, is_full_disk
from changelane.spark.runtime.redact import sentence_of
from changelane.spark.sources.batch_stream import BatchedInput, BatchStream
from changelane.spark.sources.interface import Input
from changelane.spark.sources.kafka import data_loss_hint, is_data_loss
from changelane.spark.sources.kafka_admin import exception_names

MAX_BATCH_REPORTS: Final = 100
"""The maximum number of batches in a run's report; a run may go on for years."""


class BatchResult(Protocol):
    """The report of a batch."""

    def joined(self, later: Self) -> Self:
        """Return the report of this batch and a later one together."""
        ...


R = TypeVar("R", bound=BatchResult)


def with_batch(batches: list[R], batch: R) -> list[R]:
    """Return batches and one more; above :data:`MAX_BATCH_REPORTS` the two oldest are joined."""
    all_batches = [*batches, batch]
    if len(all_batches) > MAX_BATCH_REPORTS:
        oldest, second, *newer = all_batches
        return [oldest.joined(second), *newer]
    return all_batches


class RunCounts(Protocol):
    """The counters of a run so far."""

    @property
    def quarantined(self) -> dict[str, int]:
        """The number of quarantined entries, by reason code."""
        ...

    @property
    def total(self) -> int:
        """The number of events that the run read."""
        ...


def check_budget(options: Options, report: RunCounts) -> None:
    """Stop a run between two batches when it exceeds its error budget.

    Raises:
        BudgetError: The run quarantined more than the options allow.
    """
    over_budget = over_budget_text(options.budget, report.quarantined, report.total, is_ended=False)
    if over_budget is not None:
        msg = (
            f"{over_budget}: the run stops; the next run continues after this batch with a new "
            "budget; `changelane quarantine list` and `show` display the entries"
        )
        raise BudgetError(msg)


class RunError(ChangelaneError):
    """The stream ended with an error."""


def open_tables(access: Callable[[], None]) -> None:
    """Run the first access to the tables; an unavailable catalog fails with one line.

    Raises:
        RunError: The catalog does not answer. The message names the kinds of errors only: their
            text may quote an address with a password.
    """
    try:
        access()
    except Py4JJavaError as error:
        msg = f"the tables cannot be opened ({exception_names(error)}): see the sink's options"
        raise RunError(msg) from error


@contextlib.contextmanager
def full_disk_errors(pipeline: Pipeline) -> Iterator[None]:
    """Name the folders of a run that fails because a disk is full.

    Raises:
        RunError: A disk is full.
    """
    try:
        yield
    except CaptureError:  # it names the capture log
        raise
    except Exception as error:  # of Python, Py4J, Spark or changelane; any other error goes on
        if not is_full_disk(error):
            raise
        spark_folder = (
            os.environ.get("SPARK_LOCAL_DIRS")
            or pipeline.options.spark_options.get("spark.local.dir")
            or tempfile.gettempdir()
        )
        folders = dict.fromkeys((pipeline.folder, pipeline.checkpoint, *spark_folder.split(",")))
        raise RunError(full_disk_sentence(folders)) from error


class BatchFunction:
    """The function that Spark calls with each batch; it stores our own errors, which Spark wraps.

    Args:
        apply: Applies a batch.
        interrupts: The interrupts of the run.
    """

    def __init__(
        self, apply: Callable[[Any, int], None], interrupts: Interrupts | None = None
    ) -> None:
        self._apply = apply
        self._interrupts = interrupts
        self.error: ChangelaneError | None = None

    def __call__(self, batch: Any, number: int) -> None:
        """Apply a batch."""
        interrupts = self._interrupts
        try:
            with contextlib.nullcontext() if interrupts is None else interrupts.batch():
                self._apply(batch, number)
        except ChangelaneError as error:
            self.error = error
            raise
        except Exception:
            if interrupts is not None and interrupts.is_urgent:
                # Spark matches an error's text with a recursion that a long text overflows
                self.error = InterruptedRunError()
                raise self.error from None
            raise


class InterruptibleReport(Protocol):
    """The report of a run that an interrupt can end."""

    is_interrupted: bool


@contextlib.contextmanager
def stream_errors(
    report: InterruptibleReport, batch_function: BatchFunction, pipeline: Pipeline
) -> Iterator[None]:
    """Record an interrupt in the report; turn any other failure into an error of our own.

    Raises:
        RunError: The stream failed.
        CaptureError: The capture of the source's database failed.
        ChangelaneError: The error of a batch.
    """
    try:
        yield
    except KeyboardInterrupt:
        report.is_interrupted = True
    except (BudgetError, CaptureError):
        raise
    except Exception as error:
        if isinstance(batch_function.error, InterruptedRunError):
            report.is_interrupted = True
            return
        raise batch_function.error or RunError(failure_reason(error, pipeline)) from error


def failure_reason(error: Exception, pipeline: Pipeline) -> str:
    """Return why a stream failed, without row values, and the way to continue, if any."""
    if is_data_loss(error):
        loss = "messages that were not read yet are gone from the broker"
        return f"{loss}: {data_loss_hint(pipeline)}"
    return sentence_of(error)


def stream_writer_of(
    rows: DataFrame, pipeline: Pipeline, apply: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    """Return the writer of a pipeline's stream, not started."""
    stream_writer = (
        rows.writeStream.foreachBatch(apply)
        .option("checkpointLocation", pipeline.checkpoint)
        .queryName(f"changelane {pipeline.name}")
    )
    options = pipeline.options
    if options.trigger == "available_now" or options.max_interval is not None:
        return stream_writer.trigger(availableNow=True)
    return stream_writer.trigger(processingTime=f"{options.interval_ms} milliseconds")


_NO_LATEST_OFFSETS: Final = 'because the return value of "scala.Option.get()" is null'
"""The text of the error of :class:`_RestartedStream`."""


class RunningQuery(Protocol):
    """A running stream: Spark's ``StreamingQuery``, or a :class:`BatchStream`."""

    def awaitTermination(self, timeout: int) -> bool | None:  # noqa: N802 - Spark's name
        """Wait for the end; return whether the stream ended within the timeout, seconds."""
        ...

    def stop(self) -> None:
        """Stop the stream."""
        ...


class Stream(Protocol):
    """A stream, which starts after its last complete batch."""

    def start(self) -> RunningQuery:
        """Start the stream."""
        ...


def stream_of(
    spark: SparkSession,
    source: Input,
    pipeline: Pipeline,
    apply: Callable[[Any, int], None],
) -> Stream:
    """Return the stream of a pipeline.

    Raises:
        ConfigError: The source does not exist.
    """
    if isinstance(source, BatchedInput):
        source.verify()  # raises before the stream starts
        return BatchStream(spark, source, f"changelane {pipeline.name}", pipeline.options, apply)
    return topic_stream(source.stream(), pipeline, apply)


def topic_stream(
    rows: DataFrame, pipeline: Pipeline, apply: Callable[[DataFrame, int], None]
) -> Stream:
    """Return the stream of a pipeline that reads topics."""
    return _RestartedStream(stream_writer_of(rows, pipeline, apply))


class _RestartedStream:
    """A stream that survives a defect of Spark 4.1.1 and 4.1.2.

    A query that begins with the batch of an interrupted run fails after it has committed that
    batch, because the Kafka source has no latest offsets to report yet
    (https://github.com/apache/spark/issues/55236). It is started again, once.
    """

    def __init__(self, writer: DataStreamWriter) -> None:
        self._writer = writer

    def start(self) -> RunningQuery:
        return _RestartedQuery(self._writer)


class _RestartedQuery:
    def __init__(self, writer: DataStreamWriter) -> None:
        self._writer = writer
        self._query: RunningQuery = writer.start()
        self._is_restarted = False

    def awaitTermination(self, timeout: int) -> bool | None:  # noqa: N802 - Spark's name
        try:
            return self._query.awaitTermination(timeout)
        except StreamingQueryException as error:
            if self._is_restarted or _NO_LATEST_OFFSETS not in str(error):
                raise
        self._is_restarted = True
        self._query = self._writer.start()
        return False

    def stop(self) -> None:
        self._query.stop()


def stop_query(query: RunningQuery | None) -> None:
    """Stop a stream, if it was started."""
    if query is not None:
        with contextlib.suppress(Exception):
            query.stop()
