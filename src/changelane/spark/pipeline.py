# SPDX-License-Identifier: Apache-2.0
"""``changelane run``: a source, the decoder and the applier as one Spark stream."""

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.codec import get_codec
from changelane.config import Pipeline
from changelane.errors import ChangelaneError
from changelane.spark.applier import Applier
from changelane.spark.files import decode_lines, lines
from changelane.spark.lake import Marker
from changelane.spark.survey import BatchReport

Progress = Callable[[BatchReport], None]


class RunError(ChangelaneError):
    """The stream ended with an error."""


class RunReport(msgspec.Struct):
    """What a run did."""

    pipeline: str
    batches: list[BatchReport] = []

    @property
    def events(self) -> int:
        """Events that the batches held for tables."""
        return sum(batch.events for batch in self.batches)

    @property
    def quarantined(self) -> dict[str, int]:
        """What was set aside, by reason code."""
        total: dict[str, int] = {}
        for batch in self.batches:
            for code, count in batch.quarantined.items():
                total[code] = total.get(code, 0) + count
        return total


def run(spark: SparkSession, pipeline: Pipeline, *, progress: Progress | None = None) -> RunReport:
    """Run a pipeline until what is there is applied, or for ever when it is ``continuous``.

    It may be stopped or killed at any moment and run again: tables end the same.

    Raises:
        ConfigError: A name or a path is wrong.
        RunError: The stream failed; what was committed stays right.
    """
    get_codec(pipeline.source.format, **pipeline.source.format_options)
    report = RunReport(pipeline.name)
    options = pipeline.options
    keys = {table: tuple(columns) for table, columns in options.keys.items()}
    told = lines(spark, pipeline.source)
    applier = Applier(
        spark,
        pipeline.sink.path,
        table_format=pipeline.table_format,
        keyless=options.keyless,
        sources=options.sources,
    )
    applier.raise_fence(pipeline.name)
    query_id = _QueryId(spark, pipeline.checkpoint)

    def apply(batch: DataFrame, number: int) -> None:
        events = decode_lines(
            batch, pipeline.source, keys=keys, keyless=options.keyless, epoch=options.epoch
        )
        marker = Marker(pipeline.name, query_id(), number)
        done = applier.apply(events, marker, {"source": pipeline.source.path})
        report.batches.append(done)
        if progress is not None:
            progress(done)

    writer = (
        told.writeStream.foreachBatch(apply)
        .option("checkpointLocation", pipeline.checkpoint)
        .queryName(f"changelane {pipeline.name}")
    )
    if options.trigger == "available_now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=options.interval)
    query = writer.start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            query.stop()
    except Exception as error:
        raise RunError(_reason(error)) from error
    return report


def order_note(pipeline: Pipeline) -> str | None:
    """Return what to say aloud when nothing but offsets orders a pipeline's events."""
    source = pipeline.source
    if get_codec(source.format, **source.format_options).carries.positions:
        return None
    return (
        f"{source.format} tells no positions: its events are ordered by their offsets inside one "
        "partition, or file; a key that comes in two of them is set aside as `unordered`"
    )


class _Checkpoint(msgspec.Struct):
    id: str


class _QueryId:
    """The id that Spark gave the checkpoint when it was made."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        self._path = f"{checkpoint}/metadata"
        self._id = ""

    def __call__(self) -> str:
        if not self._id:
            told = self._spark.read.text(self._path, wholetext=True).first()
            self._id = msgspec.json.decode(told[0] if told else "{}", type=_Checkpoint).id
        return self._id


_QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


def _reason(error: Exception) -> str:
    """Return why a stream ended, without the values that Spark's words may quote."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    return _QUOTED.sub("'...'", text.partition("\n\tat ")[0]) or type(error).__name__


def quarantined(spark: SparkSession, pipeline: Pipeline) -> Any:
    """Return the quarantine of a pipeline as a DataFrame."""
    applier = Applier(spark, pipeline.sink.path, table_format=pipeline.table_format)
    return applier.quarantine.table()
