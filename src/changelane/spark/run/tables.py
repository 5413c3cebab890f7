# SPDX-License-Identifier: Apache-2.0
"""``changelane run`` into tables: a source, the decoder and the applier as one Spark stream."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from changelane.codec import get_codec
from changelane.pipeline.config import Pipeline
from changelane.pipeline.options import Options
from changelane.spark.apply.applier import Applier, is_small_batch
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.evolution.evolution_state import evolution_of
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.lake.layout import layouts_of
from changelane.spark.lake.modes import modes_of
from changelane.spark.maintenance.compaction import MaintenanceReport
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.expressions.apply import apply_expressions
from changelane.spark.rows.expressions.expression_rows import PreparedTransform, prepared_transforms
from changelane.spark.run.interrupts import Interrupts
from changelane.spark.run.query import (
    MAX_BATCH_REPORTS,
    BatchFunction,
    check_budget,
    open_tables,
    stream_errors,
    stream_of,
    with_batch,
)
from changelane.spark.run.repeated_rows import with_repeat_note
from changelane.spark.run.trigger import AdaptiveTrigger, run_stream
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.files import FilesInput
from changelane.spark.sources.interface import Input, input_of
from changelane.spark.sources.kafka import KafkaInput
from changelane.spark.state.offset_log import (
    BatchOffsets,
    OffsetLog,
    OffsetLogEntry,
    lost_checkpoint_warning,
    offset_log_of,
)
from changelane.transforms.mask import masks_of

OnBatch = Callable[[BatchReport], None]


class RunReport(msgspec.Struct):
    """The report of a run.

    Attributes:
        pipeline: The pipeline's name.
        batches: The batches; above :data:`MAX_BATCH_REPORTS` the oldest are joined into one.
        paused: The paused tables, whose events wait in the change log, and the reasons.
        maintained: The newest maintenance reports.
        changed: Files that changed after they were read; their later content is not read.
        is_interrupted: Whether the user stopped the run; the next run continues from there.
    """

    pipeline: str
    batches: list[BatchReport] = []
    paused: dict[str, str] = {}
    maintained: list[MaintenanceReport] = []
    changed: list[str] = []
    is_interrupted: bool = False

    def add(self, batch: BatchReport) -> None:
        """Add the report of a batch."""
        self.batches = with_batch(self.batches, batch)

    @property
    def events(self) -> int:
        """The number of events for tables."""
        return sum(batch.events for batch in self.batches)

    @property
    def total(self) -> int:
        """The number of events of all kinds; an undecodable message counts as one."""
        return sum(batch.total for batch in self.batches)

    @property
    def quarantined(self) -> dict[str, int]:
        """The number of quarantined entries, by reason code."""
        total: dict[str, int] = {}
        for batch in self.batches:
            for code, count in batch.quarantined.items():
                total[code] = total.get(code, 0) + count
        return total


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    on_batch: OnBatch = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
    on_step: Callable[[str], None] = lambda _: None,
    is_checkpoint_recovery: bool = False,
    is_data_loss_allowed: bool = False,
    check_source: Callable[[], None] = lambda: None,
) -> RunReport:
    """Run a pipeline until all input is applied, or for ever when it is ``continuous``.

    It may be stopped or killed at any moment and run again: the tables end the same.

    Args:
        spark: The session.
        pipeline: The pipeline.
        on_batch: Called with each batch, and with each merge between batches, from two threads.
        notify: Shows a note to the user.
        on_step: Called with the name of each step of a batch when it begins.
        is_checkpoint_recovery: Whether to continue from the offsets in the tables when the
            checkpoint is missing.
        is_data_loss_allowed: With *is_checkpoint_recovery*, whether to skip messages that the
            topics do not store any more.
        check_source: Called about every second; it raises to stop the run.

    Raises:
        CaptureError: The capture of the source's database failed.
        ConfigError: A name or a path is wrong.
        RunError: The stream failed; committed batches stay correct.
        BudgetError: The run quarantined more than the options allow.
    """
    expressions = expressions_of(spark, pipeline)
    report, options = RunReport(pipeline.name), pipeline.options
    on_batch = with_repeat_note(on_batch, notify)
    checkpoint = Checkpoint(spark, pipeline.checkpoint)
    source = input_of(spark, pipeline, checkpoint, notify)
    source.verify()
    log = offset_log_of(
        spark, pipeline, is_continued=is_checkpoint_recovery or checkpoint.is_created
    )
    lake = lake_of(spark, pipeline)
    applier = applier_of(spark, lake, pipeline, stops=options.on_error == "stop", on_step=on_step)
    open_tables(lambda: applier.acquire_fencing_token(pipeline.name))
    scheduler = applier.maintenance_scheduler(
        options.maintenance_limits, options.tombstone_retention_s, pipeline=pipeline.name
    )
    dispatcher = TableDispatcher(lake, applier, pipeline.name, _merge_schedule(options))

    def merge(*, all_of_them: bool) -> None:
        batch_report = dispatcher.merge(all_of_them=all_of_them)
        if batch_report is not None:
            report.add(batch_report)
            on_batch(batch_report)

    def apply_batch(batch: Any, query: str, number: int, batch_offsets: BatchOffsets) -> None:
        if log.is_finished(query, number):
            report.add(
                skipped_report := _with_source_counts(
                    BatchReport(number, finished_before=1), source, batch_offsets
                )
            )
            on_batch(skipped_report)
            return
        is_small = is_small_batch(source.message_count(batch_offsets))
        decoded = source.events(batch, pipeline, is_small=is_small)
        with apply_expressions(decoded, expressions) as events:
            applied_report = dispatcher.apply(
                events,
                Marker(pipeline.name, query, number),
                source.commit_details(batch_offsets),
                is_small=is_small,
                on_planned=lambda _: _record_batch(log, source, query, number, batch_offsets),
            )
        log.record_finished(query, number)
        report.add(batch_report := _with_source_counts(applied_report, source, batch_offsets))
        on_batch(batch_report)
        with dispatcher.locked():
            report.maintained.extend(scheduler.after_batch(applier.take_event_bounds()))
            del report.maintained[:-MAX_BATCH_REPORTS]

    recover = partial(source.resume, apply_batch=apply_batch, allow_data_loss=is_data_loss_allowed)
    _restore_offset_log(
        pipeline,
        source,
        log,
        recover=recover if is_checkpoint_recovery else None,
        is_checkpoint_known=checkpoint.is_created,
        notify=notify,
    )

    def process_batch(batch: Any, number: int) -> None:
        check_budget(options, report)
        query = checkpoint.query()
        new_rows: Any = source.without_applied(batch, query)
        stored_offsets = source.offsets_of(number, new_rows)
        log.check(
            query, number, stored_offsets, pipeline.checkpoint, first_batch=_first_batch(source)
        )
        apply_batch(new_rows, query, number, stored_offsets)

    batch_function = BatchFunction(process_batch, interrupts := Interrupts(notify))
    stream = stream_of(spark, source, pipeline, batch_function)
    with stream_errors(report, batch_function, pipeline), interrupts:
        # events that wait in the change log are older than the next batch
        merge(all_of_them=options.merge != "deferred")
        run_stream(
            stream,
            AdaptiveTrigger.of(options),
            lambda: report.events,
            partial(merge, all_of_them=False),
            partial(_check_all, (interrupts.check, check_source)),
        )
        merge(all_of_them=True)
        interrupts.check()
        report.maintained.extend(scheduler.after_run(applier.take_event_bounds()))
    report.paused = dispatcher.paused
    return msgspec.structs.replace(report, changed=_changed_files(source))


def _check_all(checks: Iterable[Callable[[], None]]) -> None:
    for check in checks:
        check()


def _with_source_counts(
    batch_report: BatchReport, source: Input, batch_offsets: BatchOffsets
) -> BatchReport:
    """Return the report of a batch with the files, messages and lag of its source."""
    if isinstance(source, FilesInput):
        # this run reads nothing of a batch that an earlier run finished, so its files stay
        is_read = not (batch_report.unread or batch_report.finished_before)
        batch_report.files, source.is_fully_read = [*batch_offsets.files], is_read
    batch_report.messages, batch_report.lag = (
        source.message_count(batch_offsets),
        source.lag(batch_offsets),
    )
    return batch_report


def _first_batch(source: Input) -> int:
    """Return the first batch that the offset log of a checkpoint may have."""
    return source.first_batch if isinstance(source, FilesInput) else 0


def _changed_files(source: Input) -> list[str]:
    return source.changed if isinstance(source, FilesInput) else []


def _record_batch(
    log: OffsetLog, source: Input, query: str, number: int, batch_offsets: BatchOffsets
) -> None:
    """Record the input of a batch; the log drops files that the source has forgotten."""
    if isinstance(source, FilesInput):
        log.record_batch(query, number, batch_offsets, source.is_remembered)
    else:
        log.record_batch(query, number, batch_offsets)


def applier_of(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *,
    stops: bool = False,
    on_step: Callable[[str], None] = lambda _: None,
) -> Applier:
    """Return the applier of a pipeline; with *stops* it raises at the first rejected event."""
    options = pipeline.options
    return Applier(
        spark,
        lake,
        tables_without_key=options.tables_without_key,
        source_servers=options.source_servers,
        modes=modes_of(options),
        evolution=evolution_of(options),
        layouts=layouts_of(options),
        stops=stops,
        masks=masks_of(pipeline.pure_steps),
        on_step=on_step,
    )


def _merge_schedule(options: Options) -> MergeSchedule:
    return MergeSchedule(options.merge == "deferred", options.merge_events, options.merge_seconds)


def expressions_of(spark: SparkSession, pipeline: Pipeline) -> list[PreparedTransform]:
    """Return a pipeline's filters and computes.

    Raises:
        ConfigError: A name or an expression is wrong.
    """
    get_codec(pipeline.source.format, **pipeline.source.format_options)
    return prepared_transforms(spark, pipeline.expressions, len(pipeline.pure_steps) + 1)


def _restore_offset_log(
    pipeline: Pipeline,
    source: Input,
    log: OffsetLog,
    *,
    recover: Callable[[list[OffsetLogEntry]], BatchOffsets | None] | None,
    is_checkpoint_known: bool,
    notify: Callable[[str], None],
) -> None:
    """Continue after the offsets that were read, or start from the beginning."""
    entries = log.read()
    log.check_epoch(entries)
    if is_checkpoint_known:
        source.check(entries)
    elif recover is not None:
        if (offsets := recover(entries)) is not None:
            log.replace(offsets)
    elif entries:
        if isinstance(source, KafkaInput):
            source.check_restart(entries)
        notify(lost_checkpoint_warning(pipeline))
        log.clear()


def quarantine_rows(spark: SparkSession, pipeline: Pipeline) -> Any:
    """Return the quarantine of a pipeline as a DataFrame."""
    applier = Applier(spark, lake_of(spark, pipeline))
    return applier.quarantine.table()
