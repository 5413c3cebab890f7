# SPDX-License-Identifier: Apache-2.0
"""The offset ranges of lost checkpoints that are still to be read, from the offset log."""

from collections.abc import Callable
from typing import NamedTuple

from changelane.pipeline.kafka_offsets import OffsetRange, Offsets, merged_offsets, partitions
from changelane.spark.state.offset_log import OffsetLogEntry


class UnreadRanges(NamedTuple):
    """The unread ranges of checkpoints.

    Attributes:
        selected: The newest batch of each checkpoint with its unread range, of the topics that the
            source selects. The range of a complete batch is empty.
        unselected: The offsets after the messages that were read, of all other topics.
    """

    selected: list[tuple[OffsetLogEntry, OffsetRange]]
    unselected: OffsetRange


def unread_ranges(
    entries: list[OffsetLogEntry], select: Callable[[Offsets], Offsets]
) -> UnreadRanges:
    """Return the unread ranges of checkpoints; a partition is in that of its newest batch only.

    Args:
        entries: The entries of the offset log.
        select: Returns the offsets of the topics that the source selects.
    """
    ranges = [
        (entry, OffsetRange(span.ends, span.ends if entry.is_finished else span.starts, span.ids))
        for entry in entries
        if (span := entry.newest.span) is not None
    ]
    newest = merged_offsets(offset_range.ends for _, offset_range in ranges)
    selected_topics = select(newest).keys()
    selected: list[tuple[OffsetLogEntry, OffsetRange]] = []
    unselected_starts: list[Offsets] = []
    unselected_ids: dict[str, str] = {}
    for entry, offset_range in ranges:
        ends: Offsets = {}
        starts: Offsets = {}
        for topic, number, end in partitions(offset_range.ends):
            if end == newest[topic][number]:
                ends.setdefault(topic, {})[number] = end
                start = offset_range.starts.get(topic, {}).get(number, 0)
                starts.setdefault(topic, {})[number] = start
        selected_ends, selected_starts = (
            {topic: offsets[topic] for topic in offsets if topic in selected_topics}
            for offsets in (ends, starts)
        )
        ids = offset_range.ids
        selected.append((entry, OffsetRange(selected_ends, selected_starts, ids)))
        unselected_starts.append({t: starts[t] for t in starts if t not in selected_topics})
        unselected_ids |= {topic: ids[topic] for topic in ids if topic not in selected_topics}
    return UnreadRanges(
        selected, OffsetRange(merged_offsets(unselected_starts), {}, unselected_ids)
    )


def starts_of(offset_range: OffsetRange) -> OffsetRange:
    """Return a range that ends at the starts of another range."""
    starts = {
        topic: {
            partition: offset_range.starts.get(topic, {}).get(partition, 0) for partition in offsets
        }
        for topic, offsets in offset_range.ends.items()
    }
    return OffsetRange(starts, starts, offset_range.ids)
