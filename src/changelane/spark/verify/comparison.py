# SPDX-License-Identifier: Apache-2.0
"""The comparison of a table with its table in the lake, while both move. Pure.

A *reading* is one snapshot of the source, whose position P is known, and one version of the lake
that has everything up to the snapshot. A key that the lake changed after P is left out on both
sides. All keys that a reading leaves out, or at which the sides differ, are compared again with
the next reading. A key is a difference if two readings find it different.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

Key = str
"""The fields of a key, one after the other."""
Chunk = int
RowFields = list[tuple[str, ...]]
"""The rows of one key, each as the hashes of its columns."""
RowTexts = Sequence[str | None]
"""The canonical texts of a row's columns; ``None`` = NULL."""
MAX_OPEN_KEYS: Final = 100_000
"""The number of different keys after which no more chunks are searched for rows."""
_MODULUS: Final = 1 << 64


class Sums(msgspec.Struct, frozen=True):
    """The rows of a chunk as numbers.

    Attributes:
        count: The number of rows that are not left out.
        first, second: The sums of the halves of their hashes, modulo 2^64. Sums, because equal
            rows would cancel in an exclusive or.
        left_out_count: The number of rows that are left out.
    """

    count: int = 0
    first: int = 0
    second: int = 0
    left_out_count: int = 0

    @classmethod
    def of(cls, count: int, first: int, second: int, left_out_count: int) -> "Sums":
        """Return numbers whose sums may exceed the modulus, or be negative."""
        return cls(count, first % _MODULUS, second % _MODULUS, left_out_count)

    def is_equal(self, other: "Sums") -> bool:
        """Whether the rows that are not left out are the same, up to collisions of MD5."""
        return (self.count, self.first, self.second) == (other.count, other.first, other.second)


class Side(Protocol):
    """The rows of one side in one reading."""

    def sums(self, left_out: frozenset[Key], chunk: Chunk | None) -> Mapping[Chunk, Sums]:
        """Return the sums of a chunk with rows, or of all of them."""
        ...

    def hashes(self, chunk: Chunk, left_out: frozenset[Key]) -> Mapping[Key, list[str]]:
        """Return the hashes of the rows of a chunk, by key."""
        ...

    def fields(self, row_keys: frozenset[Key]) -> Mapping[Key, RowFields]:
        """Return the rows of some keys."""
        ...


class Reading(Protocol):
    """One snapshot of the source, and one version of the lake that contains it."""

    @property
    def source(self) -> Side:
        """The rows of the source."""
        ...

    @property
    def lake(self) -> Side:
        """The rows of the lake."""
        ...

    @property
    def left_out(self) -> frozenset[Key]:
        """The keys that the lake changed after the position of the snapshot."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The names of the compared columns, in the order of the fields."""
        ...


OpenReading = Callable[[], AbstractContextManager[Reading]]


class Difference(msgspec.Struct, frozen=True):
    """A row that two readings found different.

    Attributes:
        key: The key.
        kind: ``missing`` (the lake has no row), ``extra`` (the source has none), ``repeated`` (the
            lake has several) or ``columns``.
        columns: The different columns.
    """

    key: Key
    kind: str
    columns: tuple[str, ...] = ()


class ChunkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a chunk.

    Attributes:
        chunk: Its number.
        row_count: The number of rows of the source in the first reading.
        difference_count: The number of differences that the first reading found, and another one
            confirmed.
        is_unsearched: It differs, but its rows were not searched.
    """

    chunk: Chunk
    row_count: int
    difference_count: int = 0
    is_unsearched: bool = False


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison.

    Attributes:
        row_count: The number of rows of the source in the first reading.
        chunks: The results of the chunks with rows, in the order of their numbers.
        differences: The differences, by key.
        unproven_keys: The keys that changed in each reading, or differed in the last one only.
        reading_count: The number of readings.
    """

    row_count: int
    chunks: tuple[ChunkResult, ...] = ()
    differences: tuple[Difference, ...] = ()
    unproven_keys: tuple[Key, ...] = ()
    reading_count: int = 1

    @property
    def unsearched_chunks(self) -> tuple[ChunkResult, ...]:
        """The chunks that differ, but whose rows were not searched: there were too many."""
        return tuple(result for result in self.chunks if result.is_unsearched)

    @property
    def is_complete(self) -> bool:
        """Whether each row is proven, also those that only the lake has."""
        return not self.unproven_keys and not self.unsearched_chunks

    @property
    def unproven_share(self) -> float:
        """The share of the source's rows about which nothing is proven."""
        unsearched = sum(result.row_count for result in self.unsearched_chunks)
        count = len(self.unproven_keys) + unsearched
        return min(count / max(self.row_count, 1), 1.0)


def compare(
    open_reading: OpenReading,
    *,
    max_readings: int,
    max_open_keys: int = MAX_OPEN_KEYS,
    chunk: Chunk | None = None,
) -> Comparison:
    """Compare the two sides.

    Args:
        open_reading: Opens the next reading.
        max_readings: The number of readings after which an open key is unproven, at least 2.
        max_open_keys: The number of different keys after which no more chunk is searched.
        chunk: The only chunk to compare, of whose keys a reading leaves some out; ``None`` = all.
    """
    with open_reading() as reading:
        comparison, chunk_of = _first_comparison(reading, max_open_keys, chunk)
        different_keys = frozenset(chunk_of)
        open_keys = reading.left_out | different_keys
    differences: list[Difference] = []
    reading_count = 1
    while open_keys and reading_count < max_readings:
        reading_count += 1
        with open_reading() as reading:
            found = different_rows(reading, open_keys - reading.left_out)
            open_keys &= reading.left_out
        differences += [found[key] for key in found.keys() & different_keys]
        open_keys |= found.keys() - different_keys
        different_keys |= found.keys()
    counts = Counter(chunk_of.get(difference.key) for difference in differences)
    return msgspec.structs.replace(
        comparison,
        chunks=tuple(
            msgspec.structs.replace(result, difference_count=counts[result.chunk])
            for result in comparison.chunks
        ),
        differences=tuple(sorted(differences, key=lambda difference: difference.key)),
        unproven_keys=tuple(sorted(open_keys)),
        reading_count=reading_count,
    )


def different_rows(reading: Reading, row_keys: frozenset[Key]) -> dict[Key, Difference]:
    """Return the differences between the rows of some keys that a reading does not leave out."""
    source, lake = reading.source.fields(row_keys), reading.lake.fields(row_keys)
    differences = (
        _difference(key, source.get(key, []), lake.get(key, []), reading.columns)
        for key in row_keys
    )
    return {difference.key: difference for difference in differences if difference is not None}


def _first_comparison(
    reading: Reading, max_open_keys: int, only: Chunk | None
) -> tuple[Comparison, dict[Key, Chunk]]:
    """Compare all chunks; return the keys at which the sides differ, with their chunks."""
    source_sums = reading.source.sums(reading.left_out, only)
    lake_sums = reading.lake.sums(reading.left_out, only)
    chunk_of: dict[Key, Chunk] = {}
    unsearched_chunks = set()
    for chunk in sorted(source_sums.keys() | lake_sums.keys()):
        if source_sums.get(chunk, Sums()).is_equal(lake_sums.get(chunk, Sums())):
            continue
        if len(chunk_of) >= max_open_keys:
            unsearched_chunks.add(chunk)
            continue
        source = reading.source.hashes(chunk, reading.left_out)
        lake = reading.lake.hashes(chunk, reading.left_out)
        chunk_keys = {
            key
            for key in source.keys() | lake.keys()
            if sorted(source.get(key, [])) != sorted(lake.get(key, []))
        }
        chunk_of |= dict.fromkeys(chunk_keys, chunk)
        if not chunk_keys:  # never equal without a proof
            unsearched_chunks.add(chunk)
    results = tuple(
        ChunkResult(
            chunk=chunk,
            row_count=sums.count + sums.left_out_count,
            is_unsearched=chunk in unsearched_chunks,
        )
        for chunk in sorted(source_sums.keys() | lake_sums.keys())
        for sums in [source_sums.get(chunk, Sums())]
    )
    comparison = Comparison(row_count=sum(result.row_count for result in results), chunks=results)
    return comparison, chunk_of


def _difference(
    key: Key, source: RowFields, lake: RowFields, columns: Sequence[str]
) -> Difference | None:
    """Return the difference between the rows of a key; ``None`` = they are equal."""
    if sorted(source) == sorted(lake):
        return None
    if not lake:
        return Difference(key, "missing")
    if not source:
        return Difference(key, "extra")
    if len(source) == len(lake) == 1:
        pairs = zip(columns, source[0], lake[0], strict=True)
        return Difference(key, "columns", tuple(name for name, a, b in pairs if a != b))
    return Difference(key, "repeated")
