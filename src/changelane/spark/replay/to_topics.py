# SPDX-License-Identifier: Apache-2.0
"""Replays for topics: what was set aside is converted and sent again, behind what came since.

Of each partition of the source everything goes in the order that it had there. With ``hold_keys``
all that waits of a key goes together, so that the last message of a key is its newest.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import and_
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.conversion.partition import Coming
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka import KafkaSink, KafkaSource
from changelane.spark.lake.interface import Lake
from changelane.spark.replay.to_tables import entries_of
from changelane.spark.rows.rejected import Entry, read_rest
from changelane.spark.sinks.blocked_keys import KEY
from changelane.spark.sinks.kafka import sender_of
from changelane.spark.state import replays as ledger
from changelane.spark.state.fencing import raise_fence
from changelane.spark.state.replays import ENTRY, Begun, ReplayReport, Replays


class Resending:
    """Brings replays to the topics of a pipeline, at least once.

    Raises:
        ConfigError: It does not go from topics to topics.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, lake: Lake) -> None:
        source, sink = pipeline.source, pipeline.sink
        if not isinstance(source, KafkaSource) or not isinstance(sink, KafkaSink | DataHubSink):
            raise ConfigError("only topics are delivered into topics")
        self._source = source
        self._holds = sink.hold_keys
        self._sender = partial(sender_of, spark, pipeline)
        self._lake = lake
        # two replays at once would send everything twice: the older one stops
        self._fence = raise_fence(lake, ledger.NAME, pipeline.name)

    def along(self, found: DataFrame, chosen: DataFrame) -> DataFrame:
        """Return what is replayed when some of what waits is chosen: with it, all of its keys."""
        if not self._holds:
            return chosen
        keys = chosen.select(*(F.col(name).alias(f"chosen_{name}") for name in KEY)).distinct()
        same = (F.col(name).eqNullSafe(F.col(f"chosen_{name}")) for name in KEY)
        theirs = found.join(keys, reduce(and_, same), "left_semi")
        others = theirs.join(chosen.select(ENTRY), ENTRY, "left_anti")
        columns = [ENTRY, *Entry._fields]
        return chosen.select(*columns).unionByName(others.select(*columns))

    def land(
        self, begun: Begun, replays: Replays, name: str, options: Mapping[str, Any]
    ) -> ReplayReport:
        """Send a replay, whose messages are of a format.

        Raises:
            FencedError: Another replay of the pipeline began meanwhile.
        """
        self._fence.check(self._lake.properties(ledger.NAME))
        content = replays.content(begun.number).select(*Entry._fields)
        ordered = content.repartition("topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset", "row_index"
        )
        source = msgspec.structs.replace(self._source, format=name, format_options=dict(options))
        report = self._sender(source).send(
            ordered, _read, replays.marker(begun.number), goes_on=True
        )
        self._fence.check(self._lake.properties(ledger.NAME))
        return ReplayReport(
            begun.number,
            begun.entries,
            report.events,
            report.written,
            quarantined=report.quarantined,
        )


# -- on the workers


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[Coming]:
    for batch in batches:
        for one in entries_of(batch):
            message = read_rest(one.message).message(one.raw_value, one.raw_key, one.place)
            # versions that kept no rest told of messages which could not be read that it was
            # their first event: all of them go, some maybe again
            yield Coming(message, only=None if one.message is None else one.row_index)
