# SPDX-License-Identifier: Apache-2.0
"""``changelane quarantine replay``: what was set aside goes through its pipeline again, once.

A message is decoded again with its own coordinates, and an event that its table refused comes
again as its stream told it: each has the order that it had, so that what is newer stays.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.codec import get_codec
from changelane.errors import ConfigError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka import KafkaSink
from changelane.spark.lake import lake_of
from changelane.spark.maintenance.quarantine_view import Choice
from changelane.spark.replay.repaired import with_mended
from changelane.spark.replay.to_tables import Reapplying
from changelane.spark.replay.to_topics import Resending
from changelane.spark.state.quarantine import Quarantine
from changelane.spark.state.replays import (
    ENTRY,
    Begun,
    ReplayReport,
    Replays,
    Settings,
    is_replayable,
    replayed,
    waiting,
)
from changelane.transforms.mask import masks_of


def replay(
    spark: SparkSession,
    pipeline: Pipeline,
    choice: Choice,
    settings: Settings,
    mended: Mapping[str, Message] | None = None,
) -> list[ReplayReport]:
    """Replay what waits in the quarantine of a pipeline; a run into tables that goes on stops.

    Or discard it: it is noted as done, and nothing comes of it.

    It may be killed at any moment and run again: a replay that was killed is first brought to its
    end. What fails again is set aside again.

    Args:
        spark: The session.
        pipeline: The pipeline.
        choice: What is replayed of what waits and can be.
        settings: How messages are read, or that they are discarded.
        mended: Messages in the place of those that entries hold; only these entries are replayed.

    Raises:
        ConfigError: A name is wrong, or a mended message is none that waits.
        FencedError: A run of the pipeline, or another replay, began meanwhile.
    """
    check(pipeline, settings, mended)
    lake = lake_of(spark, pipeline)
    Quarantine(spark, lake)  # there is one from now on
    replays = Replays(spark, lake, pipeline.name)
    is_sent = isinstance(pipeline.sink, KafkaSink | DataHubSink)
    keeps_keys = isinstance(pipeline.sink, KafkaSink | DataHubSink) and pipeline.sink.hold_keys

    def here() -> DataFrame:
        found = waiting(lake, pipeline.name)
        if settings.discards:
            return found
        return found.where(is_replayable(masks_of(pipeline.pure_steps)))

    # neither a wrong name nor a replay of nothing stops a run
    chosen = chosen_entries(here(), choice, mended, keeps_keys=keeps_keys)
    if not (unfinished := replays.unfinished()) and not chosen.limit(1).count():
        return []
    target: Resending | Reapplying = (Resending if is_sent else Reapplying)(spark, pipeline, lake)

    def land(begun: Begun, *, is_resumed: bool) -> ReplayReport:
        report = ReplayReport(begun.number, begun.entries, is_discarded=begun.settings.discards)
        if not begun.settings.discards:
            report = target.land(begun, replays, *_codec_of(pipeline, begun.settings))
        replays.done(begun.number)
        return msgspec.structs.replace(report, is_resumed=is_resumed)

    done = [land(begun, is_resumed=True) for begun in unfinished]
    if done and (over := replayed(lake)) is not None:
        chosen = chosen.join(over, ENTRY, "left_anti")
    if not settings.discards:
        chosen = target.along(here(), chosen)
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
    found: DataFrame,
    choice: Choice,
    mended: Mapping[str, Message] | None = None,
    *,
    keeps_keys: bool = False,
) -> DataFrame:
    """Return what is chosen of the entries that wait; keys decide what waits, where they stay.

    Raises:
        ConfigError: A name is wrong, or a mended message is none that waits.
    """
    if mended is None:
        return choice.of(found)
    named = msgspec.structs.replace(choice, entries=tuple(mended))
    return with_mended(named.of(found), mended, keeps_keys=keeps_keys)
