# SPDX-License-Identifier: Apache-2.0
"""``changelane run``: a source, the decoder and the applier as one Spark stream."""

import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from changelane.codec import get_codec
from changelane.config import Pipeline
from changelane.errors import ChangelaneError
from changelane.spark.applier import Applier
from changelane.spark.fanout import Cadence, Fanout
from changelane.spark.files import decode_lines, lines
from changelane.spark.followed import evolution_of
from changelane.spark.lake import Marker
from changelane.spark.lakes import lake_of
from changelane.spark.layout import layouts_of
from changelane.spark.maintenance import Upkeep
from changelane.spark.modes import modes_of
from changelane.spark.reasons import reason_of
from changelane.spark.resume import BatchLog, Began, applied_elsewhere, finish, lost, without
from changelane.spark.survey import BatchReport

TICK_S: Final = 5
"""How often tables are looked at that wait for a time, seconds."""

Progress = Callable[[BatchReport], None]


class RunError(ChangelaneError):
    """The stream ended with an error."""


class RunReport(msgspec.Struct):
    """What a run did.

    Attributes:
        pipeline: The pipeline's name.
        batches: Its batches.
        parked: Tables whose events wait in the change log, and why.
    """

    pipeline: str
    batches: list[BatchReport] = []
    parked: dict[str, str] = {}
    maintained: list[Upkeep] = []

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


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    progress: Progress = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    resume: bool = False,
) -> RunReport:
    """Run a pipeline until what is there is applied, or for ever when it is ``continuous``.

    It may be stopped or killed at any moment and run again: tables end the same.

    Args:
        spark: The session.
        pipeline: The pipeline.
        progress: Told of each batch.
        say: Told what people should know at the start.
        resume: When the checkpoint is gone, go on from what the tables hold.

    Raises:
        ConfigError: A name or a path is wrong.
        RunError: The stream failed; what was committed stays right.
    """
    get_codec(pipeline.source.format, **pipeline.source.format_options)
    report = RunReport(pipeline.name)
    options = pipeline.options
    keys = {table: tuple(columns) for table, columns in options.keys.items()}
    told = lines(spark, pipeline.source)
    tables = lake_of(spark, pipeline)
    applier = Applier(
        spark,
        tables,
        keyless=options.keyless,
        sources=options.sources,
        modes=modes_of(options),
        evolution=evolution_of(options),
        layouts=layouts_of(options),
    )
    applier.raise_fence(pipeline.name)
    keeper = applier.keeper(options.upkeep, options.purge_after_s)
    query_id = _QueryId(spark, pipeline.checkpoint)
    is_log = options.apply == "log"
    fanout = Fanout(
        tables,
        applier,
        pipeline.name,
        Cadence(is_log, options.merge_events, options.merge_seconds),
    )

    def merge(*, all_of_them: bool) -> None:
        merged = fanout.merge(all_of_them=all_of_them)
        if merged is not None:
            report.batches.append(merged)

    log = BatchLog(spark, pipeline.sink.path, pipeline.name)

    def land(batch: DataFrame, query: str, number: int) -> None:
        events = decode_lines(
            batch,
            pipeline.source,
            keys=keys,
            keyless=options.keyless,
            epoch=options.epoch,
            transforms=pipeline.transforms,
        )
        done = fanout.take(
            events,
            Marker(pipeline.name, query, number),
            {"source": pipeline.source.path},
            begin=lambda told: log.begin(query, number, told.files),
        )
        report.batches.append(done)
        progress(done)
        with fanout.alone():
            report.maintained.extend(keeper.after_batch(applier.take_seen()))

    began = log.read() if query_id.is_known or resume else _anew(log, pipeline, say)
    if not query_id.is_known:
        for one in began:
            finish(one, lines(spark, pipeline.source, streams=False), land)

    def apply(batch: DataFrame, number: int) -> None:
        query = query_id()
        land(without(batch, applied_elsewhere(began, query)), query, number)

    writer = _writer(told, pipeline, apply)
    query = None
    try:
        # what waits in the log is older than what comes at once
        merge(all_of_them=not is_log)
        query = writer.start()
        while not query.awaitTermination(TICK_S):
            merge(all_of_them=False)
        merge(all_of_them=True)
        report.maintained.extend(keeper.at_the_end(applier.take_seen()))
    except KeyboardInterrupt:
        _stop(query)
    except Exception as error:
        _stop(query)
        raise RunError(reason_of(error)) from error
    report.parked = fanout.parked
    return report


def _anew(log: BatchLog, pipeline: Pipeline, say: Callable[[str], None]) -> list[Began]:
    """Begin with the first file, and say so when the log knows of a checkpoint that is lost."""
    if log.read():
        say(lost(pipeline.checkpoint, pipeline.options.keyless))
        log.clear()
    return []


def _writer(
    told: DataFrame, pipeline: Pipeline, apply: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    writer = (
        told.writeStream.foreachBatch(apply)
        .option("checkpointLocation", pipeline.checkpoint)
        .queryName(f"changelane {pipeline.name}")
    )
    if pipeline.options.trigger == "available_now":
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=pipeline.options.interval)


def _stop(query: StreamingQuery | None) -> None:
    if query is not None:
        with contextlib.suppress(Exception):
            query.stop()


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

    @property
    def is_known(self) -> bool:
        """Whether the checkpoint is there already."""
        path: Any = self._spark._jvm.org.apache.hadoop.fs.Path(self._path)  # type: ignore[union-attr]
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        return bool(path.getFileSystem(conf).exists(path))

    def __call__(self) -> str:
        if not self._id:
            told = self._spark.read.text(self._path, wholetext=True).first()
            self._id = msgspec.json.decode(told[0] if told else "{}", type=_Checkpoint).id
        return self._id


def quarantined(spark: SparkSession, pipeline: Pipeline) -> Any:
    """Return the quarantine of a pipeline as a DataFrame."""
    applier = Applier(spark, lake_of(spark, pipeline))
    return applier.quarantine.table()
