"""When a table is stored as merge-on-read."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from changelane.spark.lake.interface import Commit, Files, MergeMode
from changelane.spark.maintenance.merge_mode import changes_per_commit, wanted_merge_mode

MB = 1 << 20
COPY, READ = MergeMode.COPY_ON_WRITE, MergeMode.MERGE_ON_READ


def files(megabytes: int, rows: int, deleted_rows: int = 0) -> Files:
    return Files(total=4, small=0, bytes=megabytes * MB, rows=rows, deleted_rows=deleted_rows)


@pytest.mark.parametrize(
    ("current", "table", "change_count", "wanted"),
    [
        (COPY, files(7, 10**6), 1000, COPY),
        (COPY, files(8, 10**6), 1000, READ),
        (COPY, files(8, 10**6), None, READ),
        # a usual commit changes 2 % of the rows
        (COPY, files(99, 10**6), 20_000, READ),
        (COPY, files(99, 10**6), 20_001, COPY),
        (COPY, files(99, 10**6, deleted_rows=10), 20_000, COPY),
        # the mode does not alternate
        (READ, files(99, 10**6), 40_000, READ),
        (READ, files(99, 10**6), 40_001, COPY),
        (READ, files(4, 10**6), 1000, READ),
        (READ, files(3, 10**6), 1000, COPY),
        # files without statistics
        (COPY, files(99, 0), None, COPY),
    ],
)
def test_the_mode_of_a_table(
    current: MergeMode, table: Files, change_count: int | None, wanted: MergeMode
) -> None:
    mode = wanted_merge_mode(current, table, change_count, min_bytes=8 * MB, max_share=0.02)
    assert mode is wanted


def test_without_a_size_every_table_is_large() -> None:
    mode = wanted_merge_mode(COPY, files(0, 100), 1, min_bytes=0, max_share=0.02)
    assert mode is READ


@pytest.mark.parametrize(
    ("applied", "change_count"),
    [
        ([], None),
        ([1000], None),
        ([1010, 1000], 10),
        ([1010, 1000, 0], 10),
        # a commit without changes, such as one of the options, does not count
        ([1030, 1030, 1010, 1000], 10),
        # one large batch among small ones
        ([9030, 9020, 9010, 1010, 1000], 10),
    ],
)
def test_the_changes_of_a_usual_commit(applied: Sequence[int], change_count: int | None) -> None:
    class Lake:
        def marked_commits(self, _table: str) -> Iterator[Commit]:
            for total in applied:
                yield Commit(0, {"tally": {"applied": total}})

    lake: Any = Lake()
    assert changes_per_commit(lake, "tables/shop.orders") == change_count
