# SPDX-License-Identifier: Apache-2.0
"""Offsets of topic partitions, the offset range of a batch, and the lag."""

from collections.abc import Iterable

import msgspec

Offsets = dict[str, dict[int, int]]
"""Topic -> partition -> offset."""

Lag = dict[str, dict[int, int]]
"""Topic -> partition -> number of unread messages."""


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets of a batch.

    Attributes:
        ends: The offset after the last message of each partition.
        starts: The offset of the first message of each partition; a missing one begins with 0.
        ids: The id of each topic; a topic that is deleted and created again gets a new id.
    """

    ends: Offsets
    starts: Offsets = {}
    ids: dict[str, str] = {}

    @property
    def count(self) -> int:
        """The number of offsets, including those of compacted messages and transaction markers."""
        return sum(
            max(0, end - self.starts.get(topic, {}).get(number, 0))
            for topic, number, end in partitions(self.ends)
        )


def partitions(offsets: Offsets) -> Iterable[tuple[str, int, int]]:
    """Yield topic, partition and offset."""
    for topic, partition_offsets in offsets.items():
        for partition, offset in partition_offsets.items():
            yield topic, partition, offset


def merged_offsets(all_offsets: Iterable[Offsets]) -> Offsets:
    """Return the greatest offset of each partition.

    >>> merged_offsets([{"t": {0: 1, 1: 5}}, {"t": {0: 2}, "u": {0: 0}}])
    {'t': {0: 2, 1: 5}, 'u': {0: 0}}
    """
    merged: Offsets = {}
    for topic, partition, offset in (part for each in all_offsets for part in partitions(each)):
        topic_offsets = merged.setdefault(topic, {})
        topic_offsets[partition] = max(offset, topic_offsets.get(partition, offset))
    return merged


def total_lag(lag: Lag | None) -> int | None:
    """Return the total number of unread messages; ``None`` if unknown."""
    return None if lag is None else sum(count for _, _, count in partitions(lag))
