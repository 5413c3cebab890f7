# SPDX-License-Identifier: Apache-2.0
"""The distribution of segments over tasks."""

from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.manifest import Segment
from changelane.spark.sources.segments import tasks_of


@given(st.lists(st.integers(1, 80 << 20), min_size=1, max_size=40), st.integers(1, 8))
def test_every_segment_has_one_task_in_order(sizes: list[int], task_count: int) -> None:
    given_segments = tuple(
        Segment(str(number), number, 1, size, "") for number, size in enumerate(sizes)
    )
    tasks = tasks_of(given_segments, task_count)
    assert all(tasks)
    assert tuple(segment for task in tasks for segment in task) == given_segments
    assert len(tasks) <= max(1, min(len(sizes), max(task_count, sum(sizes) // (16 << 20))) + 1)
