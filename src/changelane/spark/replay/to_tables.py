# SPDX-License-Identifier: Apache-2.0
"""Replays into tables: decode messages again, and apply events of tables again unchanged."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.conversion.message_files import LineFormat
from changelane.errors import DecodeError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.files_source import FilesSource
from changelane.reason_codes import ReasonCode
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.lake.interface import Lake
from changelane.spark.rows import schema as rows
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.builder import RowBuilder, row_builder
from changelane.spark.rows.expressions.apply import apply_expressions
from changelane.spark.rows.rejected import (
    MessageDetails,
    QuarantineEntry,
    Row,
    event_row,
    read_details,
    schema_row,
)
from changelane.spark.rows.schema import FIELD_INDEX
from changelane.spark.run.tables import applier_of, expressions_of
from changelane.spark.sources.decode_options import decode_options_of
from changelane.spark.sources.file_listing import root_of
from changelane.spark.sources.file_reader import record_rows
from changelane.spark.sources.file_tasks import file_rows, pieces_of
from changelane.spark.state.file_log import File
from changelane.spark.state.replays import ReplayReport, Replays, UnfinishedReplay


class TableReplay:
    """Applies replays to the tables of a pipeline, and stops a run that is under way."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, lake: Lake) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._lake = lake
        self._expressions = expressions_of(spark, pipeline)
        self._waiting_quarantined: dict[str, int] = {}
        self._dispatcher = self._new_dispatcher(stops=pipeline.options.on_error == "stop")

    def _new_dispatcher(self, *, stops: bool) -> TableDispatcher:
        """Return a dispatcher with a new fencing token; with *stops* a rejected event raises."""
        applier = applier_of(self._spark, self._lake, self._pipeline, stops=stops)
        applier.acquire_fencing_token(self._pipeline.name)
        return TableDispatcher(self._lake, applier, self._pipeline.name, MergeSchedule())

    def merge_waiting_events(self) -> None:
        """Merge the events that wait in the change log: they come first, as in a run.

        Raises:
            BudgetError: A table rejects one of them, and the options set ``on_error: stop``.
        """
        report = self._dispatcher.merge(all_of_them=True)
        self._waiting_quarantined = {} if report is None else report.quarantined
        # the entries of a replay that fail again stay in the quarantine, whatever the options say
        if self._pipeline.options.on_error == "stop":
            self._dispatcher = self._new_dispatcher(stops=False)

    def entries_to_replay(self, rows: DataFrame, selected_entries: DataFrame) -> DataFrame:
        """Return the selected entries: a replay into tables needs no others."""
        del rows
        return selected_entries

    def apply(
        self,
        unfinished_replay: UnfinishedReplay,
        replays: Replays,
        format_name: str,
        options: Mapping[str, Any],
    ) -> ReplayReport:
        """Apply a replay, after :meth:`merge_waiting_events`; its messages have one format."""
        entries = replays.entries_of(unfinished_replay.number)
        marker, details = replays.marker(unfinished_replay.number), {"source": "quarantine"}
        # filters and computes already ran for events that tables rejected
        is_transformed = F.coalesce(
            F.get_json_object("event", "$.kind") != rows.REJECTED, F.lit(False)
        )
        event_entries = entries.where(~is_transformed) if self._expressions else entries
        with apply_expressions(
            event_rows_of(event_entries, self._pipeline, format_name, options), self._expressions
        ) as events:
            if self._expressions:
                decoded_events = event_rows_of(
                    entries.where(is_transformed), self._pipeline, format_name, options
                )
                events = events.unionByName(decoded_events)  # noqa: PLW2901
            report = self._dispatcher.apply(events, marker, details)
        waiting_quarantined, self._waiting_quarantined = self._waiting_quarantined, {}
        return ReplayReport(
            unfinished_replay.number,
            unfinished_replay.entries,
            report.events,
            tables=applied_events(report),
            quarantined=report.quarantined,
            waiting_quarantined=waiting_quarantined,
            paused=self._dispatcher.paused,
        )


def applied_events(report: BatchReport) -> dict[str, int]:
    """Return the number of events by table, without tables that applied none of theirs."""
    return {
        table.table: table.events + table.applied_before
        for table in report.tables
        if table.path and table.failed is None
    }


def event_rows_of(
    entries: DataFrame, pipeline: Pipeline, format_name: str, options: Mapping[str, Any]
) -> DataFrame:
    """Return the event rows of a replay's entries; entries of whole files are read again."""
    make_builder = partial(row_builder, format_name, options, **decode_options_of(pipeline))
    reads_files = isinstance(pipeline.source, FilesSource)
    decode = partial(_decode, make_builder, reads_files=reads_files)
    event_rows = entries.select(*QuarantineEntry._fields).mapInArrow(decode, rows.DDL)
    if not isinstance(pipeline.source, FilesSource):
        return event_rows
    file_entries = entries.where(F.get_json_object("message", "$.file").isNotNull())
    topics_by_epoch: dict[int, dict[str, str]] = defaultdict(dict)
    for row in file_entries.select("topic", "message").collect():
        details = read_details(row["message"])
        topics_by_epoch[details.epoch][details.file or ""] = row["topic"] or ""
    for epoch, files in sorted(topics_by_epoch.items()):
        file_rows = _file_event_rows(
            entries.sparkSession, pipeline.source, files, partial(make_builder, epoch=epoch)
        )
        event_rows = event_rows.unionByName(file_rows)
    return event_rows


def _file_event_rows(
    spark: SparkSession,
    source: FilesSource,
    files: Mapping[str, str],
    make_builder: "partial[RowBuilder]",
) -> DataFrame:
    """Return the event rows of whole files, with the topics of their messages."""
    root = root_of(spark, source)
    line_format = None if source.line_format == "auto" else LineFormat(source.line_format)
    whole_files = [File(path, None, 0) for path in sorted(files)]
    pieces = [
        piece._replace(topic=files[piece.path])
        for piece in pieces_of(whole_files, root, {}, follow_links=source.follow_links)
    ]
    return file_rows(spark, source, pieces, make_builder, line_format)


# -- on the workers


def _decode(
    make_builder: "partial[RowBuilder]", batches: Iterator[pa.RecordBatch], *, reads_files: bool
) -> Iterator[pa.RecordBatch]:
    reader = _EntryReader(make_builder, reads_files=reads_files)
    for batch in batches:
        yield from rows.arrow_batches(reader.rows(entry) for entry in entries_of(batch))


def entries_of(batch: pa.RecordBatch) -> Iterator[QuarantineEntry]:
    """Return the entries of rows with the columns of :class:`QuarantineEntry`."""
    columns = (batch.column(index).to_pylist() for index in range(len(QuarantineEntry._fields)))
    return (QuarantineEntry(*values) for values in zip(*columns, strict=True))


class _EntryReader:
    """Decodes the entries of a replay into event rows, within one task."""

    def __init__(self, make_builder: "partial[RowBuilder]", *, reads_files: bool) -> None:
        self._make_builder = make_builder
        self._reads_files = reads_files  # the pipeline reads whole files elsewhere
        self._builders: dict[int, RowBuilder] = {}
        self._emitted_schemas: set[tuple[str, str]] = set()

    def rows(self, entry: QuarantineEntry) -> tuple[int, list[Row]]:
        """Return the size of an entry in bytes, and its event rows."""
        if entry.event is not None:
            row = event_row(entry.event, entry.coordinates, entry.row_index)
            return len(entry.event), self._event_rows(row, entry.schema)
        details, value = read_details(entry.message), entry.raw_value
        if details.file is not None:
            return 0, [] if self._reads_files else [self._rejected_row(entry, details)]
        builder = self._builder(details.epoch)
        size = len(value or b"")
        if details.is_line and value is not None:
            return size, record_rows(builder, value, entry.coordinates)
        return size, builder.rows(details.message(value, entry.raw_key, entry.coordinates))

    def _builder(self, epoch: int) -> RowBuilder:
        if epoch not in self._builders:
            self._builders[epoch] = self._make_builder(epoch=epoch)
        return self._builders[epoch]

    def _rejected_row(self, entry: QuarantineEntry, details: MessageDetails) -> Row:
        error = DecodeError(
            "the entry is a whole file, and the source is not files",
            code=ReasonCode.UNREADABLE_FILE,
        )
        message = Message(None, None, (), entry.topic)
        return self._builder(details.epoch).error_row(message, error, file=details.file)

    def _event_rows(self, row: Row, schema: str | None) -> list[Row]:
        if row[FIELD_INDEX["kind"]] != "data" or schema is None:
            return [row]
        schema_key = row[FIELD_INDEX["table_id"]], row[FIELD_INDEX["schema_id"]]
        if schema_key in self._emitted_schemas:
            return [row]
        self._emitted_schemas.add(schema_key)
        return [schema_row(row, schema), row]
