# SPDX-License-Identifier: Apache-2.0
"""Offsets of topics and partitions, as ranges of a batch and as lag."""

from collections.abc import Iterable

import msgspec

Offsets = dict[str, dict[int, int]]
"""Offset by partition by topic."""

Lag = dict[str, dict[int, int]]
"""The number of unread messages, by partition by topic."""


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets of a batch.

    Attributes:
        ends: The offset after the last message of each partition.
        starts: The offset of the first message; a missing partition is new and begins with 0.
        ids: The identity of each topic; a topic that is deleted and created again gets another.
    """

    ends: Offsets
    starts: Offsets = {}
    ids: dict[str, str] = {}

    @property
    def count(self) -> int:
        """The number of its offsets, with those that compaction or a transaction left empty."""
        return sum(
            max(0, end - self.starts.get(topic, {}).get(number, 0))
            for topic, number, end in partitions(self.ends)
        )


def partitions(offsets: Offsets) -> Iterable[tuple[str, int, int]]:
    """Yield topic, partition and offset."""
    for topic, partition_offsets in offsets.items():
        for partition, offset in partition_offsets.items():
            yield topic, partition, offset


def total_lag(lag: Lag | None) -> int | None:
    """Return the total number of unread messages; ``None`` = unknown."""
    return None if lag is None else sum(count for _, _, count in partitions(lag))
