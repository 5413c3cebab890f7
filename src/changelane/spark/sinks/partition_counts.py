# SPDX-License-Identifier: Apache-2.0
"""The partition counts of a pipeline's sink topics: one empty file ``TOPIC@COUNT`` per topic.

When a topic's partition count changes, new changes of a row are sent to another partition than
its earlier ones. The files detect a change between two runs, too.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import SparkSession

from changelane.profiles.profile import changed_partitions
from changelane.spark.runtime.sql import folder_name
from changelane.spark.state.small_files import SmallFiles

_FOLDER: Final = "_changelane/topics"


class TopicCounts:
    """The partition counts of the topics that a pipeline has written to.

    Args:
        spark: The session.
        root: The folder of the pipeline's state.
        pipeline: The pipeline's name.
    """

    def __init__(self, spark: SparkSession, root: str, pipeline: str) -> None:
        self._files = SmallFiles(spark, f"{root.rstrip('/')}/{_FOLDER}/{folder_name(pipeline)}")
        self._partition_counts = self._read()

    def _read(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name in self._files.names():
            topic, _, count = name.rpartition("@")
            if topic and count.isdigit():
                # two files: the run was killed between them, and partitions are only ever added
                counts[topic] = max(int(count), counts.get(topic, 0))
        return counts

    @property
    def partition_counts(self) -> dict[str, int]:
        """The last recorded partition count of each topic."""
        return dict(self._partition_counts)

    def record_changes(self, counts: Mapping[str, int]) -> list[str]:
        """Record new partition counts; return a warning for each topic whose count changed."""
        warnings: list[str] = []
        for topic, previous_count in list(self._partition_counts.items()):
            count = counts.get(topic, previous_count)
            if warning := changed_partitions(topic, previous_count, count):
                warnings.append(warning)
                self._record(topic, count)
        return warnings

    def record_written(self, topics: Iterable[str], counts: Mapping[str, int]) -> None:
        """Record the partition counts of topics that were written to for the first time."""
        for topic in topics:
            if topic not in self._partition_counts and topic in counts:
                self._record(topic, counts[topic])

    def _record(self, topic: str, count: int) -> None:
        previous_count = self._partition_counts.get(topic)
        self._files.mark(f"{topic}@{count}")
        if previous_count is not None:
            self._files.delete(f"{topic}@{previous_count}")
        self._partition_counts[topic] = count
