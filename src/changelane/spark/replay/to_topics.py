# SPDX-License-Identifier: Apache-2.0
"""Replays into topics: convert quarantined messages and send them again, after newer ones.

The messages of each source partition keep their order. With ``block_keys_on_error`` all waiting
messages of a key are sent together, so that the last message of a key is its newest.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import and_
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.conversion.partition import IncomingMessage
from changelane.pipeline.config import Pipeline
from changelane.spark.lake.interface import Lake
from changelane.spark.replay.to_tables import entries_of
from changelane.spark.rows.rejected import QuarantineEntry, read_details
from changelane.spark.sinks.blocked_keys import KEY_COLUMNS
from changelane.spark.sinks.interface import ends_of, sender_of
from changelane.spark.state import replays as ledger
from changelane.spark.state.fencing import create_fencing_token
from changelane.spark.state.replays import ENTRY, ReplayReport, Replays, UnfinishedReplay


class TopicReplay:
    """Sends replays to the topics of a pipeline, at least once.

    Raises:
        ConfigError: Source or sink of the pipeline is not a topic.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, lake: Lake) -> None:
        self._source, _ = ends_of(pipeline)
        self._is_blocking_keys = pipeline.sink.blocks_keys
        self._sender = partial(sender_of, spark, pipeline)
        self._lake = lake
        # two parallel replays would send everything twice, so the older one stops
        self._fencing_token = create_fencing_token(lake, ledger.NAME, pipeline.name)

    def merge_waiting_events(self) -> None:
        """Do nothing: only events of tables wait."""

    def entries_to_replay(self, rows: DataFrame, selected_entries: DataFrame) -> DataFrame:
        """Return the selected entries; if keys are blocked, all pending entries of their keys."""
        if not self._is_blocking_keys:
            return selected_entries
        keys = selected_entries.select(
            *(F.col(format_name).alias(f"chosen_{format_name}") for format_name in KEY_COLUMNS)
        ).distinct()
        is_same_key = (
            F.col(format_name).eqNullSafe(F.col(f"chosen_{format_name}"))
            for format_name in KEY_COLUMNS
        )
        key_entries = rows.join(keys, reduce(and_, is_same_key), "left_semi")
        later_entries = key_entries.join(selected_entries.select(ENTRY), ENTRY, "left_anti")
        columns = [ENTRY, *QuarantineEntry._fields]
        return selected_entries.select(*columns).unionByName(later_entries.select(*columns))

    def apply(
        self,
        unfinished_replay: UnfinishedReplay,
        replays: Replays,
        format_name: str,
        options: Mapping[str, Any],
    ) -> ReplayReport:
        """Send a replay; its messages have one format.

        Raises:
            FencedError: Another replay of the pipeline has begun in the meantime.
        """
        self._fencing_token.check(self._lake.properties(ledger.NAME))
        entries = replays.entries_of(unfinished_replay.number).select(*QuarantineEntry._fields)
        ordered = entries.repartition("topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset", "row_index"
        )
        source = msgspec.structs.replace(
            self._source, format=format_name, format_options=dict(options)
        )
        report = self._sender(source).send(
            ordered, _read_entries, replays.marker(unfinished_replay.number), is_lenient=True
        )
        self._fencing_token.check(self._lake.properties(ledger.NAME))
        return ReplayReport(
            unfinished_replay.number,
            unfinished_replay.entries,
            report.events,
            report.written,
            quarantined=report.quarantined,
        )


# -- on the workers


def _read_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[IncomingMessage]:
    for batch in batches:
        for entry in entries_of(batch):
            message = read_details(entry.message).message(
                entry.raw_value, entry.raw_key, entry.coordinates
            )
            # older versions stored no details, and the row index 0 for undecodable messages:
            # all of their events are sent, some perhaps again
            yield IncomingMessage(
                message, event_index=None if entry.message is None else entry.row_index
            )
