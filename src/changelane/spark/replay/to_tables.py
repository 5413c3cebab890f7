# SPDX-License-Identifier: Apache-2.0
"""Replays for tables: messages are decoded again, events of tables come again as they were told."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.conversion.message_files import LineForm
from changelane.errors import DecodeError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.files_source import FilesSource
from changelane.spark.apply.dispatch import Cadence, Fanout
from changelane.spark.lake.interface import Lake
from changelane.spark.rows import schema as rows
from changelane.spark.rows.builder import RowBuilder, row_builder
from changelane.spark.rows.expressions.apply import expressed
from changelane.spark.rows.rejected import Entry, Rest, Row, event_row, read_rest, schema_row
from changelane.spark.rows.schema import AT
from changelane.spark.run.tables import applier_of, expressions_of
from changelane.spark.sources.decode_options import reading_of
from changelane.spark.sources.file_listing import root_of
from changelane.spark.sources.file_reader import record_rows
from changelane.spark.sources.file_tasks import file_rows, pieces_of
from changelane.spark.state.file_log import File
from changelane.spark.state.replays import Begun, ReplayReport, Replays


class Reapplying:
    """Brings replays to the tables of a pipeline; a run of it that is going on stops."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, lake: Lake) -> None:
        self._pipeline = pipeline
        self._expressions = expressions_of(spark, pipeline)
        applier = applier_of(spark, lake, pipeline)
        applier.raise_fence(pipeline.name)
        self._fanout = Fanout(lake, applier, pipeline.name, Cadence())

    def along(self, found: DataFrame, chosen: DataFrame) -> DataFrame:
        """Return what is replayed when some of what waits is chosen: that."""
        del found
        return chosen

    def land(
        self, begun: Begun, replays: Replays, name: str, options: Mapping[str, Any]
    ) -> ReplayReport:
        """Apply a replay, whose messages are of a format."""
        content = replays.content(begun.number)
        marker, details = replays.marker(begun.number), {"source": "quarantine"}
        # events that tables refused went through filters and computes already
        is_made = F.coalesce(F.get_json_object("event", "$.kind") != rows.REFUSED, F.lit(False))
        anew = content.where(~is_made) if self._expressions else content
        with expressed(decoded(anew, self._pipeline, name, options), self._expressions) as events:
            if self._expressions:
                made = decoded(content.where(is_made), self._pipeline, name, options)
                events = events.unionByName(made)  # noqa: PLW2901
            report = self._fanout.take(events, marker, details)
        return ReplayReport(
            begun.number,
            begun.entries,
            report.events,
            tables={one.table: one.events for one in report.tables},
            quarantined=report.quarantined,
            parked=self._fanout.parked,
        )


def decoded(
    content: DataFrame, pipeline: Pipeline, name: str, options: Mapping[str, Any]
) -> DataFrame:
    """Return the event rows of what a replay replays; whole files are read again."""
    make = partial(row_builder, name, options, **reading_of(pipeline))
    reads_files = isinstance(pipeline.source, FilesSource)
    read = partial(_decode, make, reads_files=reads_files)
    found = content.select(*Entry._fields).mapInArrow(read, rows.DDL)
    if not isinstance(pipeline.source, FilesSource):
        return found
    told = content.where(F.get_json_object("message", "$.file").isNotNull())
    by_epoch: dict[int, dict[str, str]] = defaultdict(dict)
    for row in told.select("topic", "message").collect():
        rest = read_rest(row["message"])
        by_epoch[rest.epoch][rest.file or ""] = row["topic"] or ""
    for epoch, files in sorted(by_epoch.items()):
        theirs = _of_files(content.sparkSession, pipeline.source, files, partial(make, epoch=epoch))
        found = found.unionByName(theirs)
    return found


def _of_files(
    spark: SparkSession,
    source: FilesSource,
    files: Mapping[str, str],
    make: "partial[RowBuilder]",
) -> DataFrame:
    """Return the event rows of whole files, which are told with the topics of their messages."""
    root = root_of(spark, source)
    form = None if source.contents == "auto" else LineForm(source.contents)
    whole = [File(path, None, 0) for path in sorted(files)]
    pieces = [
        one._replace(topic=files[one.path])
        for one in pieces_of(whole, root, {}, follow_links=source.follow_links)
    ]
    return file_rows(spark, source, pieces, make, form)


# -- on the workers


def _decode(
    make: "partial[RowBuilder]", batches: Iterator[pa.RecordBatch], *, reads_files: bool
) -> Iterator[pa.RecordBatch]:
    reader = _Reader(make, reads_files=reads_files)
    for batch in batches:
        yield from rows.gather(reader.rows(one) for one in entries_of(batch))


def entries_of(batch: pa.RecordBatch) -> Iterator[Entry]:
    """Return the entries of rows with the columns of :class:`Entry`."""
    columns = (batch.column(index).to_pylist() for index in range(len(Entry._fields)))
    return (Entry(*values) for values in zip(*columns, strict=True))


class _Reader:
    """Turns what a replay replays into event rows, within one task."""

    def __init__(self, make: "partial[RowBuilder]", *, reads_files: bool) -> None:
        self._make = make
        self._reads_files = reads_files  # whole files, beside what this reads
        self._builders: dict[int, RowBuilder] = {}
        self._told: set[tuple[str, str]] = set()

    def rows(self, one: Entry) -> tuple[int, list[Row]]:
        """Return the size of an entry, and its rows."""
        if one.event is not None:
            row = event_row(one.event, one.place, one.row_index)
            return len(one.event), self._event(row, one.schema)
        rest, value = read_rest(one.message), one.raw_value
        if rest.file is not None:
            return 0, [] if self._reads_files else [self._refused(one, rest)]
        builder = self._builder(rest.epoch)
        size = len(value or b"")
        if rest.is_line and value is not None:
            return size, record_rows(builder, value, one.place)
        return size, builder.rows(rest.message(value, one.raw_key, one.place))

    def _builder(self, epoch: int) -> RowBuilder:
        if epoch not in self._builders:
            self._builders[epoch] = self._make(epoch=epoch)
        return self._builders[epoch]

    def _refused(self, one: Entry, rest: Rest) -> Row:
        error = DecodeError("a whole file, and the source is none of files", code="unreadable_file")
        message = Message(None, None, (), one.topic)
        return self._builder(rest.epoch).refuse(message, error, file=rest.file)

    def _event(self, row: Row, schema: str | None) -> list[Row]:
        if row[AT["kind"]] != "data" or schema is None:
            return [row]
        name = row[AT["table_id"]], row[AT["schema_id"]]
        if name in self._told:
            return [row]
        self._told.add(name)
        return [schema_row(row, schema), row]
