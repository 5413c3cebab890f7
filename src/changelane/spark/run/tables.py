# SPDX-License-Identifier: Apache-2.0
"""``changelane run``: a source, the decoder and the applier as one Spark stream."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession

from changelane.codec import get_codec
from changelane.pipeline.config import Pipeline
from changelane.pipeline.options import Options
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.dispatch import Cadence, Fanout
from changelane.spark.evolution.evolution_state import evolution_of
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.lake.layout import layouts_of
from changelane.spark.lake.modes import modes_of
from changelane.spark.maintenance.compaction import Upkeep
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.expressions.apply import expressed
from changelane.spark.rows.expressions.expression_rows import Prepared, prepared
from changelane.spark.run.interrupts import Interrupts
from changelane.spark.run.query import (
    KEPT,
    Applying,
    check_budget,
    ending,
    input_of,
    opening,
    stream_of,
    with_batch,
)
from changelane.spark.run.repeated_rows import with_repeat_note
from changelane.spark.run.trigger import Pace, drive
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.files import FilesInput
from changelane.spark.state.offset_log import BatchLog, Began, Held, lost
from changelane.transforms.mask import masks_of

if TYPE_CHECKING:
    from changelane.spark.sources.datahub import DataHubInput
    from changelane.spark.sources.kafka import KafkaInput

if TYPE_CHECKING:
    Input = FilesInput | KafkaInput | DataHubInput

Progress = Callable[[BatchReport], None]


class RunReport(msgspec.Struct):
    """What a run did.

    Attributes:
        pipeline: The pipeline's name.
        batches: Its batches; of more than :data:`KEPT` the oldest are told as one.
        parked: Tables whose events wait in the change log, and why.
        maintained: What maintenance did last.
        changed: Files that changed after they were read; what came later is not read.
        is_interrupted: Somebody stopped it; what it did not come to waits for the next run.
    """

    pipeline: str
    batches: list[BatchReport] = []
    parked: dict[str, str] = {}
    maintained: list[Upkeep] = []
    changed: list[str] = []
    is_interrupted: bool = False

    def add(self, batch: BatchReport) -> None:
        """Tell of a batch."""
        self.batches = with_batch(self.batches, batch)

    @property
    def events(self) -> int:
        """Events that the batches held for tables."""
        return sum(batch.events for batch in self.batches)

    @property
    def total(self) -> int:
        """Events of all kinds; a message that could not be read is one."""
        return sum(batch.total for batch in self.batches)

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
    on_step: Callable[[str], None] = lambda _: None,
    resume: bool = False,
    skip_lost: bool = False,
) -> RunReport:
    """Run a pipeline until what is there is applied, or for ever when it is ``continuous``.

    It may be stopped or killed at any moment and run again: tables end the same.

    Args:
        spark: The session.
        pipeline: The pipeline.
        progress: Told of each batch, and of what was merged between them, by two threads.
        say: Told what people should know at the start.
        on_step: Called with the step of the batch under way that begins.
        resume: When the checkpoint is gone, go on from what the tables hold.
        skip_lost: With *resume*, go on with what topics still have where messages are gone.

    Raises:
        ConfigError: A name or a path is wrong.
        RunError: The stream failed; what was committed stays right.
        BudgetError: More was set aside than the options allow.
    """
    expressions = expressions_of(spark, pipeline)
    report, options = RunReport(pipeline.name), pipeline.options
    progress = with_repeat_note(progress, say)
    log = BatchLog(spark, pipeline.folder, pipeline.name)
    checkpoint = Checkpoint(spark, pipeline.checkpoint)
    source = input_of(spark, pipeline, checkpoint, say)
    source.verify()
    tables = lake_of(spark, pipeline)
    stops = options.on_error == "stop"
    applier = applier_of(spark, tables, pipeline, stops=stops, on_step=on_step)
    opening(lambda: applier.raise_fence(pipeline.name))
    keeper = applier.keeper(options.upkeep, options.purge_after_s)
    fanout = Fanout(tables, applier, pipeline.name, _cadence(options))

    def merge(*, all_of_them: bool) -> None:
        merged = fanout.merge(all_of_them=all_of_them)
        if merged is not None:
            report.add(merged)
            progress(merged)

    def land(batch: Any, query: str, number: int, held: Held) -> None:
        if log.is_finished(query, number):
            report.add(known := _told(BatchReport(number, finished_before=1), source, held))
            progress(known)
            return
        with expressed(source.events(batch, pipeline), expressions) as events:
            done = fanout.take(
                events,
                Marker(pipeline.name, query, number),
                source.details(held),
                begin=lambda _: _note(log, source, query, number, held),
            )
        log.record_finished(query, number)
        report.add(told := _told(done, source, held))
        progress(told)
        with fanout.alone():
            report.maintained.extend(keeper.after_batch(applier.take_seen()))
            del report.maintained[:-KEPT]

    resumes = partial(source.resume, land=land, skip_lost=skip_lost) if resume else None
    _begin(pipeline, source, log, resumes=resumes, is_known=checkpoint.is_known, say=say)

    def apply(batch: Any, number: int) -> None:
        check_budget(options, report)
        query = checkpoint.query()
        fresh: Any = source.fresh(batch, query)
        held = source.held(number, fresh)
        log.check(query, number, held, pipeline.checkpoint)
        land(fresh, query, number, held)

    applying = Applying(apply, interrupts := Interrupts(say))
    stream = stream_of(spark, source, pipeline, applying)
    tick = partial(merge, all_of_them=False)
    with ending(report, applying, pipeline), interrupts:
        # what waits in the log is older than what comes at once
        merge(all_of_them=options.apply != "log")
        drive(stream, Pace.of(options), lambda: report.events, tick, interrupts.check)
        merge(all_of_them=True)
        interrupts.check()
        report.maintained.extend(keeper.at_the_end(applier.take_seen()))
    report.parked = fanout.parked
    return msgspec.structs.replace(report, changed=_changed(source))


def _told(done: BatchReport, source: "Input", held: Held) -> BatchReport:
    """Return what a batch did, with what its source knows of it."""
    if isinstance(source, FilesInput):
        # of a batch that an earlier run finished nothing was read now: its files stay
        is_read = not (done.unread or done.finished_before)
        done.files, source.is_read = [*held.files], is_read
    done.messages, done.lag = source.taken(held), source.lag(held)
    return done


def _changed(source: "Input") -> list[str]:
    return source.changed if isinstance(source, FilesInput) else []


def _note(log: BatchLog, source: "Input", query: str, number: int, held: Held) -> None:
    """Note what a batch reads; files that are not remembered any more leave the log."""
    if isinstance(source, FilesInput):
        log.begin(query, number, held, source.remembers)
    else:
        log.begin(query, number, held)


def applier_of(
    spark: SparkSession,
    tables: Lake,
    pipeline: Pipeline,
    *,
    stops: bool = False,
    on_step: Callable[[str], None] = lambda _: None,
) -> Applier:
    """Return what applies a pipeline's events to its tables, or stops at what cannot be."""
    options = pipeline.options
    return Applier(
        spark,
        tables,
        keyless=options.keyless,
        sources=options.sources,
        modes=modes_of(options),
        evolution=evolution_of(options),
        layouts=layouts_of(options),
        stops=stops,
        masks=masks_of(pipeline.pure_steps),
        on_step=on_step,
    )


def _cadence(options: Options) -> Cadence:
    return Cadence(options.apply == "log", options.merge_events, options.merge_seconds)


def expressions_of(spark: SparkSession, pipeline: Pipeline) -> list[Prepared]:
    """Return a pipeline's filters and computes; a name or expression that is wrong fails here.

    Raises:
        ConfigError: One is.
    """
    get_codec(pipeline.source.format, **pipeline.source.format_options)
    return prepared(spark, pipeline.expressions, len(pipeline.pure_steps) + 1)


def _begin(
    pipeline: Pipeline,
    source: "Input",
    log: BatchLog,
    *,
    resumes: Callable[[list[Began]], Held | None] | None,
    is_known: bool,
    say: Callable[[str], None],
) -> None:
    """Go on behind what was read, or begin anew."""
    if is_known:
        source.check(log.read())
    elif resumes is None:
        _anew(log, pipeline, say)
    elif (resumed := resumes(log.read())) is not None:
        log.replace(resumed)


def _anew(log: BatchLog, pipeline: Pipeline, say: Callable[[str], None]) -> None:
    """Begin anew, and say so when the log knows of a checkpoint that is lost."""
    if log.read():
        say(lost(pipeline.checkpoint, pipeline.options.keyless))
        log.clear()


def quarantined(spark: SparkSession, pipeline: Pipeline) -> Any:
    """Return the quarantine of a pipeline as a DataFrame."""
    applier = Applier(spark, lake_of(spark, pipeline))
    return applier.quarantine.table()
