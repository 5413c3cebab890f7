# SPDX-License-Identifier: Apache-2.0
"""What the streams of all pipelines share: what they read, how they start and how they fail."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from changelane.errors import BudgetError, ChangelaneError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_source import DataHubSource
from changelane.pipeline.error_budget import beyond
from changelane.pipeline.kafka import KafkaSource
from changelane.pipeline.options import Options
from changelane.spark.run.interrupts import InterruptedRunError, Interrupts
from changelane.spark.runtime.redact import sentence_of
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.file_batches import FileStream
from changelane.spark.sources.files import FilesInput
from changelane.spark.sources.kafka import KafkaInput, is_data_loss, way_out
from changelane.spark.sources.kafka_admin import kinds

if TYPE_CHECKING:
    from changelane.spark.sources.datahub import DataHubInput

KEPT: Final = 100
"""How many batches a report tells one by one; a run may go on for years."""


class Report(Protocol):
    """What a batch did."""

    def joined(self, later: Self) -> Self:
        """Return what this batch and a later one did together."""
        ...


R = TypeVar("R", bound=Report)


def with_batch(batches: list[R], batch: R) -> list[R]:
    """Return batches and one more; of more than :data:`KEPT` the oldest are told as one."""
    told = [*batches, batch]
    if len(told) > KEPT:
        oldest, second, *others = told
        return [oldest.joined(second), *others]
    return told


class Counted(Protocol):
    """What a run did so far."""

    @property
    def quarantined(self) -> dict[str, int]:
        """What was set aside, by reason code."""
        ...

    @property
    def total(self) -> int:
        """How many events were taken."""
        ...


def check_budget(options: Options, report: Counted) -> None:
    """Stop a run between two batches once it has set aside more than it may.

    Raises:
        BudgetError: It has.
    """
    told = beyond(options.budget, report.quarantined, report.total, is_ended=False)
    if told is not None:
        msg = (
            f"{told}: the run stops here, and the next one goes on behind it with a new budget; "
            "`changelane quarantine list` and `show` tell what it is"
        )
        raise BudgetError(msg)


class RunError(ChangelaneError):
    """The stream ended with an error."""


def opening(first: Callable[[], None]) -> None:
    """Do what asks the tables first; a catalog that does not answer ends the run with one line.

    Raises:
        RunError: It names kinds of errors only: their words may quote an address with a password.
    """
    try:
        first()
    except Py4JJavaError as error:
        msg = f"the tables cannot be opened ({kinds(error)}): see the sink's options"
        raise RunError(msg) from error


def input_of(
    spark: SparkSession,
    pipeline: Pipeline,
    checkpoint: Checkpoint,
    say: Callable[[str], None] = lambda _: None,
) -> "FilesInput | KafkaInput | DataHubInput":
    """Return what a pipeline reads."""
    source = pipeline.source
    if isinstance(source, DataHubSource):
        # Spark 3.5 has no such sources
        from changelane.spark.sources.datahub import DataHubInput

        return DataHubInput(spark, source, checkpoint)
    if isinstance(source, KafkaSource):
        return KafkaInput(spark, source, checkpoint, way_out(pipeline))
    return FilesInput(spark, source, checkpoint, say)


class Applying:
    """What Spark calls with each batch; it keeps our own errors, which Spark would wrap.

    Args:
        apply: Does the work.
        interrupts: Whether somebody wants to stop.
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
                # Spark looks through all words of an error, with a stack that a long one overflows
                self.error = InterruptedRunError()
                raise self.error from None
            raise


class Interruptible(Protocol):
    """What a run tells at its end."""

    is_interrupted: bool


@contextlib.contextmanager
def ending(report: Interruptible, applying: Applying, pipeline: Pipeline) -> Iterator[None]:
    """Note an interrupt in the report; turn every other failure into an error of our own.

    Raises:
        RunError: The stream failed.
        ChangelaneError: What a batch ended with.
    """
    try:
        yield
    except KeyboardInterrupt:
        report.is_interrupted = True
    except BudgetError:
        raise
    except Exception as error:
        if isinstance(applying.error, InterruptedRunError):
            report.is_interrupted = True
            return
        raise applying.error or RunError(reason(error, pipeline)) from error


def reason(error: Exception, pipeline: Pipeline) -> str:
    """Return why a stream failed, without values of rows, and the way out where there is one."""
    if is_data_loss(error):
        lost = "messages that were not read yet are gone from the broker"
        return f"{lost}: {way_out(pipeline)}"
    return sentence_of(error)


def writer(
    told: DataFrame, pipeline: Pipeline, apply: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    """Return what starts a pipeline's stream."""
    found = (
        told.writeStream.foreachBatch(apply)
        .option("checkpointLocation", pipeline.checkpoint)
        .queryName(f"changelane {pipeline.name}")
    )
    options = pipeline.options
    if options.trigger == "available_now" or options.max_interval is not None:
        return found.trigger(availableNow=True)
    return found.trigger(processingTime=f"{options.interval_ms} milliseconds")


class Query(Protocol):
    """A running stream: Spark's ``StreamingQuery``, or a stream of files."""

    def awaitTermination(self, timeout: int) -> bool | None:  # noqa: N802 - Spark's name
        """Wait for the end; return whether the stream ended within the timeout, seconds."""
        ...

    def stop(self) -> None:
        """Stop the stream."""
        ...


class Starter(Protocol):
    """A stream, which starts after its last complete batch."""

    def start(self) -> Query:
        """Start the stream."""
        ...


def stream_of(
    spark: SparkSession,
    source: "FilesInput | KafkaInput | DataHubInput",
    pipeline: Pipeline,
    apply: Callable[[Any, int], None],
) -> Starter:
    """Return the stream of a pipeline.

    Raises:
        ConfigError: The source does not exist.
    """
    if isinstance(source, FilesInput):
        _ = source.root  # raises before the stream starts
        return FileStream(spark, source, f"changelane {pipeline.name}", pipeline.options, apply)
    return writer(source.stream(), pipeline, apply)


def stop(query: Query | None) -> None:
    """Stop a stream, if it was started."""
    if query is not None:
        with contextlib.suppress(Exception):
            query.stop()
