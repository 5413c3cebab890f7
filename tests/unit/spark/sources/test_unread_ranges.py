"""What is still to be read of the topics of lost checkpoints."""

from changelane.pipeline.kafka_offsets import OffsetRange, Offsets
from changelane.spark.sources.unread_ranges import unread_ranges
from changelane.spark.state.offset_log import BatchOffsets, OffsetLogEntry


def entry(query: str, span: OffsetRange | None, *, is_finished: bool = False) -> OffsetLogEntry:
    return OffsetLogEntry(query, 0, BatchOffsets(span=span), frozenset(), is_finished)


def selected(offsets: Offsets) -> Offsets:
    return {topic: offsets[topic] for topic in offsets if topic != "left"}


def test_a_partition_is_read_from_its_newest_batch_on() -> None:
    resumed = entry("resumed-1", OffsetRange({"a": {0: 5, 1: 6}}, {"a": {0: 5, 1: 6}}))
    newer = entry("q", OffsetRange({"a": {0: 9}}, {"a": {0: 7}}))
    ranges = unread_ranges([newer, resumed, entry("files", None)], selected).selected
    assert [(one.query, told.starts, told.ends) for one, told in ranges] == [
        ("q", {"a": {0: 7}}, {"a": {0: 9}}),
        ("resumed-1", {"a": {1: 6}}, {"a": {1: 6}}),
    ]


def test_a_complete_batch_has_nothing_unread() -> None:
    span = OffsetRange({"a": {0: 9}}, {"a": {0: 7}}, {"a": "id"})
    ((_, told),) = unread_ranges([entry("q", span, is_finished=True)], selected).selected
    assert told == OffsetRange({"a": {0: 9}}, {"a": {0: 9}}, {"a": "id"})


def test_topics_that_are_not_selected_keep_the_offsets_after_what_was_read() -> None:
    span = OffsetRange(
        {"a": {0: 9}, "left": {0: 4, 1: 5}}, {"a": {0: 7}, "left": {0: 2}}, {"a": "x", "left": "y"}
    )
    told = unread_ranges([entry("q", span)], selected)
    assert told.selected[0][1].ends == {"a": {0: 9}}
    assert told.unselected == OffsetRange({"left": {0: 2, 1: 0}}, {}, {"left": "y"})
    told = unread_ranges([entry("q", span, is_finished=True)], selected)
    assert told.unselected == OffsetRange({"left": {0: 4, 1: 5}}, {}, {"left": "y"})
