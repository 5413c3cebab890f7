# SPDX-License-Identifier: Apache-2.0
"""When two readings make a difference, and when a row is not proven."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from changelane.spark.verify.canonical_text import key_field, values_of
from changelane.spark.verify.comparison import (
    Chunk,
    ChunkResult,
    Comparison,
    Difference,
    Key,
    RowFields,
    Sums,
    compare,
)


class Rows(NamedTuple):
    """One side: the hash of a row by key; all rows are in chunk 0."""

    rows: Mapping[Key, str]
    is_in_sums: bool = True

    def sums(self, left_out: frozenset[Key], chunk: Chunk | None) -> Mapping[Chunk, Sums]:
        assert chunk in {None, 0}
        hashes = [int(h, 16) for key, h in self.rows.items() if key not in left_out]
        total = sum(hashes) if self.is_in_sums else 0
        return {0: Sums.of(len(hashes), total, total, len(self.rows) - len(hashes))}

    def hashes(self, chunk: Chunk, left_out: frozenset[Key]) -> Mapping[Key, list[str]]:
        assert chunk == 0
        return {key: [h] for key, h in self.rows.items() if key not in left_out}

    def fields(self, row_keys: frozenset[Key]) -> Mapping[Key, RowFields]:
        return {key: [(key, h)] for key, h in self.rows.items() if key in row_keys}


class Reading(NamedTuple):
    source: Rows
    lake: Rows
    left_out: frozenset[Key] = frozenset()
    columns: Sequence[str] = ("id", "v")


def compared(*readings: Reading, max_open_keys: int = 10) -> Comparison:
    remaining = iter(readings)

    @contextlib.contextmanager
    def open_reading() -> Iterator[Reading]:
        yield next(remaining)

    return compare(
        open_reading,
        max_readings=len(readings),
        max_open_keys=max_open_keys,
    )


def reading(source: str, lake: str, left_out: str = "") -> Reading:
    """Rows as ``a1 b2``: key and hash."""

    def rows_of(text: str) -> Rows:
        return Rows({row[0]: row[1:] for row in text.split()})

    return Reading(rows_of(source), rows_of(lake), frozenset(left_out))


def test_a_row_that_differs_once_is_no_difference() -> None:
    comparison = compared(reading("a1 b2", "a1 b3"), reading("a1 b3", "a1 b3"))
    assert (comparison.differences, comparison.unproven_keys) == ((), ())
    assert comparison.reading_count == 2


def test_a_row_that_differs_twice_is_a_difference_even_with_other_values() -> None:
    comparison = compared(
        reading("a1 b2 c3", "a1 b3 d4"), reading("a1 b5 c3", "b3 d4"), reading("a1", "a1")
    )
    assert comparison.differences == (
        Difference("b", "columns", ("v",)),
        Difference("c", "missing"),
        Difference("d", "extra"),
    )
    assert [result.difference_count for result in comparison.chunks] == [3]
    assert comparison.unproven_share == 0


def test_a_row_that_changes_in_each_reading_is_not_proven() -> None:
    comparison = compared(
        reading("a1 b2", "a1 b9", "b"), reading("a1 b2", "a1 b9", "b"), reading("b2", "b9", "b")
    )
    assert comparison.differences == ()
    assert comparison.unproven_keys == ("b",)
    assert comparison.unproven_share == 0.5


def test_a_row_that_was_left_out_needs_two_more_readings_to_be_a_difference() -> None:
    left_out = reading("a1 b2", "a1 b9", "b")
    different = reading("a1 b2", "a1 b9")
    assert compared(left_out, different).unproven_keys == ("b",)
    assert compared(left_out, different, different).differences == (
        Difference("b", "columns", ("v",)),
    )


def test_chunks_after_too_many_differences_are_not_proven() -> None:
    comparison = compared(reading("a1", "a2"), reading("a1", "a1"), max_open_keys=0)
    assert [result.chunk for result in comparison.unsearched_chunks] == [0]
    assert comparison.unproven_share == 1


def test_a_chunk_of_the_lake_alone_that_was_not_searched_is_not_proven() -> None:
    comparison = Comparison(
        row_count=7, chunks=(ChunkResult(chunk=1, row_count=0, is_unsearched=True),)
    )
    assert comparison.unproven_share == 0, "it is a share of the source's rows"
    assert not comparison.is_complete


def test_a_chunk_whose_sums_differ_without_a_row_is_not_proven() -> None:
    rows = Rows({"a": "1"})
    comparison = compared(Reading(rows, rows._replace(is_in_sums=False)), Reading(rows, rows))
    assert comparison.unproven_share == 1


def test_fields_of_keys_are_unambiguous() -> None:
    assert key_field("12") == "2:12"
    assert values_of("2:12-0:3:a:b") == ["12", None, "", "a:b"]
