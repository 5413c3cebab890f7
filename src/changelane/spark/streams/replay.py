# SPDX-License-Identifier: Apache-2.0
"""``changelane quarantine replay``: what was set aside goes through its pipeline again, once.

A message is decoded again with its own coordinates, and an event that its table refused comes
again as its stream told it: each has the order that it had, so that what is newer stays.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.codec import get_codec
from changelane.config import Pipeline
from changelane.errors import ConfigError
from changelane.message import Message
from changelane.sinks import DeltaSink, HudiSink, IcebergSink
from changelane.spark.apply.fanout import Cadence, Fanout
from changelane.spark.events import rows
from changelane.spark.events.builder import RowBuilder, row_builder
from changelane.spark.events.expressions import expressed
from changelane.spark.events.kept import Entry, Row, event_row, read_rest, schema_row
from changelane.spark.events.rows import AT
from changelane.spark.lakes import lake_of
from changelane.spark.ledgers.replays import Begun, Replays, Settings, is_replayable, waiting
from changelane.spark.streams.files import record_rows
from changelane.spark.streams.mended import with_mended
from changelane.spark.streams.pipeline import applier_of, expressions_of
from changelane.spark.upkeep.quarantined import Choice
from changelane.transforms.mask import masks_of


class ReplayReport(msgspec.Struct):
    """What a replay did.

    Attributes:
        number: Its number, which the commits of the tables tell.
        entries: How many entries it replayed.
        events: How many events they were.
        tables: Events by table.
        quarantined: What was set aside again, by reason code.
        parked: Why tables failed, whose events wait in the change log.
        is_resumed: It had begun before, and was killed.
    """

    number: int
    entries: int
    events: int = 0
    tables: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    parked: dict[str, str] = {}
    is_resumed: bool = False


def replay(
    spark: SparkSession,
    pipeline: Pipeline,
    choice: Choice,
    settings: Settings,
    mended: Mapping[str, Message] | None = None,
) -> list[ReplayReport]:
    """Replay what waits in the quarantine of a pipeline's tables; a run that is going on stops.

    It may be killed at any moment and run again: a replay that was killed is first brought to its
    end. What fails again is set aside again.

    Args:
        spark: The session.
        pipeline: The pipeline.
        choice: What is replayed of what waits and can be.
        settings: How messages are read, where it is not as the pipeline's are.
        mended: Messages in the place of those that entries hold; only these entries are replayed.

    Raises:
        ConfigError: A name is wrong, or a mended message is none that waits.
        FencedError: A run of the pipeline, or another replay, began meanwhile.
    """
    check(pipeline, settings, mended)
    lake = lake_of(spark, pipeline)
    applier = applier_of(spark, lake, pipeline)
    applier.raise_fence(pipeline.name)
    fanout = Fanout(lake, applier, pipeline.name, Cadence())
    replays = Replays(spark, lake, pipeline.name)

    expressions = expressions_of(spark, pipeline)

    def land(begun: Begun, *, is_resumed: bool) -> ReplayReport:
        content = replays.content(begun.number)
        # events that tables refused went through filters and computes already
        is_made = F.coalesce(F.get_json_object("event", "$.kind") != rows.REFUSED, F.lit(False))
        anew = content.where(~is_made) if expressions else content
        fresh = _events(anew, pipeline, begun.settings)
        with expressed(fresh, expressions) as events:
            if expressions:
                made = _events(content.where(is_made), pipeline, begun.settings)
                events = events.unionByName(made)  # noqa: PLW2901
            report = fanout.take(events, replays.marker(begun.number), {"source": "quarantine"})
        replays.done(begun.number)
        return ReplayReport(
            begun.number,
            begun.entries,
            report.events,
            {one.table: one.events for one in report.tables},
            report.quarantined,
            fanout.parked,
            is_resumed,
        )

    done = [land(begun, is_resumed=True) for begun in replays.unfinished()]
    here = waiting(lake, pipeline.name).where(is_replayable(masks_of(pipeline.pure_steps)))
    chosen = chosen_entries(here, choice, mended)
    if (begun := replays.begin(chosen, settings)) is not None:
        done.append(land(begun, is_resumed=False))
    return done


def check(
    pipeline: Pipeline, settings: Settings, mended: Mapping[str, Message] | None = None
) -> None:
    """Refuse a replay that cannot be.

    Raises:
        ConfigError: A name is wrong, or what a mask hides would have to be kept.
    """
    if not isinstance(pipeline.sink, DeltaSink | IcebergSink | HudiSink):
        raise ConfigError("what was set aside on its way into topics cannot be replayed yet")
    _codec_of(pipeline, settings)
    if mended is not None and masks_of(pipeline.pure_steps):
        msg = (
            "the pipeline masks columns, and mended messages would be kept with their values: "
            "mend them at the source and read them from there again"
        )
        raise ConfigError(msg)


def _codec_of(pipeline: Pipeline, settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the format of a replay's messages and its options."""
    source = pipeline.source
    name, options = settings.format or source.format, settings.options
    if settings.format is None:
        options = {**source.format_options, **options}
    get_codec(name, **options)
    return name, dict(options)


def chosen_entries(
    found: DataFrame, choice: Choice, mended: Mapping[str, Message] | None = None
) -> DataFrame:
    """Return what is replayed of the entries that wait.

    Raises:
        ConfigError: A name is wrong, or a mended message is none that waits.
    """
    if mended is None:
        return choice.of(found)
    named = msgspec.structs.replace(choice, entries=tuple(mended))
    return with_mended(named.of(found), mended)


def _events(content: DataFrame, pipeline: Pipeline, settings: Settings) -> DataFrame:
    """Return the event rows of what a replay replays."""
    name, options = _codec_of(pipeline, settings)
    make = partial(
        row_builder,
        name,
        options,
        keys=pipeline.options.keys,
        keyless=pipeline.options.keyless,
        images=bool(pipeline.expressions),
        steps=pipeline.pure_steps,
    )
    return content.select(*Entry._fields).mapInArrow(partial(_decode, make), rows.DDL)


# -- on the workers


def _decode(
    make: "partial[RowBuilder]", batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    reader = _Reader(make)
    for batch in batches:
        columns = (batch.column(index).to_pylist() for index in range(len(Entry._fields)))
        told = (Entry(*values) for values in zip(*columns, strict=True))
        yield from rows.gather(reader.rows(entry) for entry in told)


class _Reader:
    """Turns what a replay replays into event rows, within one task."""

    def __init__(self, make: "partial[RowBuilder]") -> None:
        self._make = make
        self._builders: dict[int, RowBuilder] = {}
        self._told: set[tuple[str, str]] = set()

    def rows(self, one: Entry) -> tuple[int, list[Row]]:
        """Return the size of an entry, and its rows."""
        if one.event is not None:
            row = event_row(one.event, one.place, one.row_index)
            return len(one.event), self._event(row, one.schema)
        rest, value = read_rest(one.message), one.raw_value
        builder = self._builders.get(rest.epoch)
        if builder is None:
            builder = self._builders[rest.epoch] = self._make(epoch=rest.epoch)
        size = len(value or b"")
        if rest.is_line and value is not None:
            return size, record_rows(builder, value, one.place)
        return size, builder.rows(rest.message(value, one.raw_key, one.place))

    def _event(self, row: Row, schema: str | None) -> list[Row]:
        if row[AT["kind"]] != "data" or schema is None:
            return [row]
        name = row[AT["table_id"]], row[AT["schema_id"]]
        if name in self._told:
            return [row]
        self._told.add(name)
        return [schema_row(row, schema), row]
