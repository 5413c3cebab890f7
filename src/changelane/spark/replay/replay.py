# SPDX-License-Identifier: Apache-2.0
"""``changelane quarantine replay``: send quarantined entries through their pipeline again, once.

A replay decodes a message again with its own coordinates, and applies a rejected event again as
its stream delivered it. Each keeps its order, so that newer changes win.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.codec import get_codec
from changelane.errors import ChangelaneError, ConfigError
from changelane.formats.contract.options import SECRET_OPTIONS
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.secret_options import is_from_environment
from changelane.pipeline.yaml import hide_variables
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake
from changelane.spark.maintenance.quarantine_view import EntryFilter
from changelane.spark.replay.repaired import with_repaired
from changelane.spark.replay.to_tables import TableReplay, event_rows_of
from changelane.spark.replay.to_topics import TopicReplay
from changelane.spark.runtime.redact import FAILURES, sentence_of
from changelane.spark.state.fencing import FencedError
from changelane.spark.state.quarantine import Quarantine
from changelane.spark.state.replays import (
    ENTRY,
    ReplayReport,
    Replays,
    Settings,
    UnfinishedReplay,
    is_replayable,
    pending_entries,
    quarantine_entries,
    replayed_entries,
)
from changelane.transforms.mask import masks_of


class ReplayError(ChangelaneError):
    """A replay that began before cannot be completed."""


def replay(
    spark: SparkSession,
    pipeline: Pipeline,
    entry_filter: EntryFilter,
    settings: Settings,
    repaired: Mapping[str, Message] | None = None,
) -> list[ReplayReport]:
    """Replay or discard the waiting entries in the quarantine of a pipeline.

    A replay into tables stops a run of the pipeline that is under way. To discard an entry marks it
    as replayed without any effect.

    A replay may be killed at any moment and run again: an unfinished replay is completed first.
    Entries that fail again are quarantined again.

    Args:
        spark: The session.
        pipeline: The pipeline.
        entry_filter: The filter of the waiting entries.
        settings: How to decode the messages, or whether to discard the entries.
        repaired: Messages that replace those of their entries; only these entries are replayed.

    Raises:
        BudgetError: Events wait in the change log, a table rejects one of them, and the options
            set ``on_error: stop``; nothing is recorded.
        ConfigError: A name is wrong, or the entry of a repaired message does not wait.
        FencedError: A run of the pipeline or another replay has begun in the meantime.
        PythonException: The settings name a schema registry that does not answer; nothing is
            recorded.
        ReplayError: An unfinished replay fails again, or has events without the present masks.
    """
    check(pipeline, settings, repaired)
    lake = lake_of(spark, pipeline)
    Quarantine(spark, lake).create()
    replays = Replays(spark, lake, pipeline.name)

    def waiting_entries() -> DataFrame:
        entries = pending_entries(lake, pipeline.name)
        if settings.discards:
            return entries
        return entries.where(is_replayable(masks_of(pipeline.pure_steps)))

    # a wrong name or an empty replay must not fence a run
    selected_entries = chosen_entries(
        waiting_entries(),
        entry_filter,
        repaired,
        kind="pending" if settings.discards else "replayable",
        keeps_keys=pipeline.sink.blocks_keys,
    )
    if not (unfinished := replays.unfinished()) and not selected_entries.limit(1).count():
        return []
    _check_masks(unfinished, replays, lake, pipeline)
    if settings.format is not None or settings.options:
        _check_decodes(selected_entries, pipeline, settings)
    replay_target = _target_of(spark, pipeline, lake)
    if not all(each.discards for each in (settings, *(one.settings for one in unfinished))):
        replay_target.merge_waiting_events()

    def replay_one(unfinished_replay: UnfinishedReplay, *, is_resumed: bool) -> ReplayReport:
        report = ReplayReport(
            unfinished_replay.number,
            unfinished_replay.entries,
            is_discarded=unfinished_replay.settings.discards,
        )
        if not unfinished_replay.settings.discards:
            report = replay_target.apply(
                unfinished_replay, replays, *_codec_of(pipeline, unfinished_replay.settings)
            )
        replays.record_done(unfinished_replay.number)
        return msgspec.structs.replace(report, is_resumed=is_resumed)

    def completed(unfinished_replay: UnfinishedReplay) -> ReplayReport:
        try:
            return replay_one(unfinished_replay, is_resumed=True)
        except FencedError:
            raise
        except (ChangelaneError, *FAILURES) as error:
            reason = error if isinstance(error, ChangelaneError) else sentence_of(error)
            raise _not_completed(unfinished_replay, str(reason)) from error

    reports = [completed(unfinished_replay) for unfinished_replay in unfinished]
    if reports and (replayed := replayed_entries(lake)) is not None:
        selected_entries = selected_entries.join(replayed, ENTRY, "left_anti")
    if not settings.discards:
        selected_entries = replay_target.entries_to_replay(waiting_entries(), selected_entries)
    if (unfinished_replay := replays.record_begin(selected_entries, settings)) is not None:
        reports.append(replay_one(unfinished_replay, is_resumed=False))
    return reports


def abandon(spark: SparkSession, pipeline: Pipeline) -> list[ReplayReport]:
    """End the unfinished replays of a pipeline without completing them; return them.

    Their entries wait again. What they have written stays, and another replay of the entries writes
    it again. A replay or a run that is under way stops.

    Args:
        spark: The session.
        pipeline: The pipeline.

    Raises:
        ConfigError: A name is wrong.
    """
    lake = lake_of(spark, pipeline)
    Quarantine(spark, lake).create()
    replays = Replays(spark, lake, pipeline.name)
    if unfinished := replays.unfinished():
        _target_of(spark, pipeline, lake)  # one of them may be under way
    for unfinished_replay in unfinished:
        replays.record_abandoned(unfinished_replay.number)
    return [ReplayReport(each.number, each.entries, is_abandoned=True) for each in unfinished]


def _target_of(spark: SparkSession, pipeline: Pipeline, lake: Lake) -> TopicReplay | TableReplay:
    """Return the target of a pipeline's replays, which stops earlier replays of it."""
    target = TopicReplay if pipeline.sink.is_topics else TableReplay
    return target(spark, pipeline, lake)


def _not_completed(unfinished_replay: UnfinishedReplay, reason: str) -> ReplayError:
    return ReplayError(
        f"replay {unfinished_replay.number} began before and cannot be completed: {reason}; "
        "correct the cause and replay again, or end it with `changelane quarantine replay "
        f"PIPELINE.yaml --abandon`: its entries ({unfinished_replay.entries}) are pending again"
    )


def check(
    pipeline: Pipeline, settings: Settings, repaired: Mapping[str, Message] | None = None
) -> None:
    """Check that a replay is possible.

    Raises:
        ConfigError: A name is wrong, a secret would be stored, or repaired messages would store
            values that a mask hides.
    """
    for name, value in _secrets_of(settings).items():
        if not is_from_environment(value):  # the settings are stored
            msg = f"read the format option {name} from the environment: {name}=${{{name.upper()}}}"
            raise ConfigError(msg)
    _codec_of(pipeline, settings)
    if repaired is not None and masks_of(pipeline.pure_steps):
        msg = (
            "the pipeline masks columns, and repaired messages would be stored with their values: "
            "repair them at the source and read them again"
        )
        raise ConfigError(msg)


def _check_masks(
    unfinished: Sequence[UnfinishedReplay], replays: Replays, lake: Lake, pipeline: Pipeline
) -> None:
    """Check that unfinished replays have no event from before the masks of the pipeline.

    A new replay leaves such events out. One that recorded them before the masks were added would
    bring their values to the tables.

    Raises:
        ReplayError: An unfinished replay has such an event.
    """
    if not (masks := masks_of(pipeline.pure_steps)):
        return
    withheld = quarantine_entries(lake, pipeline.name).where(~is_replayable(masks)).select(ENTRY)
    for unfinished_replay in unfinished:
        if unfinished_replay.settings.discards:
            continue
        entries = replays.entries_of(unfinished_replay.number)
        if count := entries.join(withheld, ENTRY, "left_semi").count():
            reason = f"{count} of its events were quarantined before the pipeline had its masks"
            raise _not_completed(unfinished_replay, reason)


def _check_decodes(entries: DataFrame, pipeline: Pipeline, settings: Settings) -> None:
    """Decode the messages of entries with the settings of a replay before they are stored.

    An unfinished replay is completed with its stored settings before another one begins. With a
    schema registry that does not exist, it would fail each time, and no other replay could begin.
    """
    messages = entries.where(
        F.col("event").isNull() & F.get_json_object("message", "$.file").isNull()
    )
    event_rows_of(messages, pipeline, *_codec_of(pipeline, settings)).count()


def _codec_of(pipeline: Pipeline, settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the format of a replay's messages and its options, with their secrets."""
    source = pipeline.source
    format_name = settings.format or source.format
    with hide_variables(_secrets_of(settings), os.environ) as secrets:
        options = {**settings.options, **secrets}
        if settings.format is None:
            options = {**source.format_options, **options}
        get_codec(format_name, **options)
    return format_name, options


def _secrets_of(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.options.items() if name in SECRET_OPTIONS}


def chosen_entries(
    entries: DataFrame,
    entry_filter: EntryFilter,
    repaired: Mapping[str, Message] | None = None,
    *,
    kind: str = "pending",
    keeps_keys: bool = False,
) -> DataFrame:
    """Return the waiting entries that the filter selects, with their repaired messages.

    Raises:
        ConfigError: A name is wrong, or the entry of a repaired message does not wait.
    """
    if repaired is None:
        return entry_filter.select(entries, kind)
    repaired_filter = msgspec.structs.replace(entry_filter, entries=tuple(repaired))
    selected_entries = repaired_filter.select(entries, kind)
    return with_repaired(selected_entries, repaired, keeps_keys=keeps_keys)
