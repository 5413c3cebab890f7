# SPDX-License-Identifier: Apache-2.0
"""How many partitions the topics had that a pipeline wrote to: an empty file ``TOPIC@COUNT`` each.

A topic whose number of partitions changes puts rows into other partitions than their earlier
changes, also between two runs.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import SparkSession

from changelane.profiles.profile import changed_partitions
from changelane.spark.runtime.sql import folder
from changelane.spark.state.small_files import SmallFiles

_FOLDER: Final = "_changelane/topics"


class TopicCounts:
    """The topics that a pipeline wrote to.

    Args:
        spark: The session.
        root: The folder of what the pipeline keeps.
        pipeline: The pipeline's name.
    """

    def __init__(self, spark: SparkSession, root: str, pipeline: str) -> None:
        self._files = SmallFiles(spark, f"{root.rstrip('/')}/{_FOLDER}/{folder(pipeline)}")
        self._known = self._read()

    def _read(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self._files.names():
            topic, _, count = name.rpartition("@")
            if topic and count.isdigit():
                # of two, the run was killed between them: partitions are only added
                found[topic] = max(int(count), found.get(topic, 0))
        return found

    @property
    def known(self) -> dict[str, int]:
        """How many partitions the topics had that were written to."""
        return dict(self._known)

    def changed(self, now: Mapping[str, int]) -> list[str]:
        """Return a warning for each topic of ours that has another number of partitions now."""
        warnings: list[str] = []
        for topic, before in list(self._known.items()):
            count = now.get(topic, before)
            if warning := changed_partitions(topic, before, count):
                warnings.append(warning)
                self._note(topic, count)
        return warnings

    def written(self, topics: Iterable[str], now: Mapping[str, int]) -> None:
        """Remember topics that were written to."""
        for topic in topics:
            if topic not in self._known and topic in now:
                self._note(topic, now[topic])

    def _note(self, topic: str, count: int) -> None:
        before = self._known.get(topic)
        self._files.mark(f"{topic}@{count}")
        if before is not None:
            self._files.delete(f"{topic}@{before}")
        self._known[topic] = count
