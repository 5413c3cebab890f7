# SPDX-License-Identifier: Apache-2.0
"""The comparison of a table with its table in the lake, while both move. Pure.

A *reading* is one snapshot of the source, whose position P is known, and one version of the lake
that has everything up to the snapshot. A key that the lake changed after P is left out on both
sides. All keys that a reading leaves out, or at which the sides differ, are compared again with
the next reading. A key is a difference if two readings find it different.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

Key = str
"""The fields of a key, one after the other."""
Chunk = int
RowFields = list[tuple[str, ...]]
"""The rows of one key, each as the hashes of its columns."""
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

    def sums(self, left_out: frozenset[Key]) -> Mapping[Chunk, Sums]:
        """Return the sums of all chunks with rows."""
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


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison.

    Attributes:
        row_count: The number of rows of the source in the first reading.
        chunk_count: The number of chunks.
        differences: The differences, by key.
        unproven_keys: The keys that changed in each reading, or differed in the last one only.
        unsearched_chunks: Chunks that differ, but whose rows were not searched: there were too many
            differences.
        unsearched_row_count: The number of their rows at the source.
        reading_count: The number of readings.
    """

    row_count: int
    chunk_count: int
    differences: tuple[Difference, ...] = ()
    unproven_keys: tuple[Key, ...] = ()
    unsearched_chunks: tuple[Chunk, ...] = ()
    unsearched_row_count: int = 0
    reading_count: int = 1

    @property
    def is_complete(self) -> bool:
        """Whether each row is proven, also those that only the lake has."""
        return not self.unproven_keys and not self.unsearched_chunks

    @property
    def unproven_share(self) -> float:
        """The share of the source's rows about which nothing is proven."""
        count = len(self.unproven_keys) + self.unsearched_row_count
        return min(count / max(self.row_count, 1), 1.0)


def compare(
    open_reading: OpenReading,
    *,
    columns: Sequence[str],
    max_readings: int,
    max_open_keys: int = MAX_OPEN_KEYS,
) -> Comparison:
    """Compare the two sides.

    Args:
        open_reading: Opens the next reading.
        columns: The names of the compared columns, in the order of the fields.
        max_readings: The number of readings after which an open key is unproven, at least 2.
        max_open_keys: The number of different keys after which no more chunk is searched.
    """
    with open_reading() as reading:
        comparison, different_keys = _first_comparison(reading, max_open_keys)
        open_keys = reading.left_out | different_keys
    differences: list[Difference] = []
    reading_count = 1
    while open_keys and reading_count < max_readings:
        reading_count += 1
        with open_reading() as reading:
            compared_keys = open_keys - reading.left_out
            source = reading.source.fields(compared_keys)
            lake = reading.lake.fields(compared_keys)
            open_keys &= reading.left_out
        for key in compared_keys:
            difference = _difference(key, source.get(key, []), lake.get(key, []), columns)
            if difference is None:
                continue
            if key in different_keys:
                differences.append(difference)
            else:
                different_keys |= {key}
                open_keys |= {key}
    return msgspec.structs.replace(
        comparison,
        differences=tuple(sorted(differences, key=lambda difference: difference.key)),
        unproven_keys=tuple(sorted(open_keys)),
        reading_count=reading_count,
    )


def _first_comparison(reading: Reading, max_open_keys: int) -> tuple[Comparison, frozenset[Key]]:
    """Compare all chunks; return the keys at which the sides differ."""
    source_sums = reading.source.sums(reading.left_out)
    lake_sums = reading.lake.sums(reading.left_out)
    different_keys: set[Key] = set()
    unsearched_chunks = []
    for chunk in sorted(source_sums.keys() | lake_sums.keys()):
        if source_sums.get(chunk, Sums()).is_equal(lake_sums.get(chunk, Sums())):
            continue
        if len(different_keys) >= max_open_keys:
            unsearched_chunks.append(chunk)
            continue
        source = reading.source.hashes(chunk, reading.left_out)
        lake = reading.lake.hashes(chunk, reading.left_out)
        chunk_keys = {
            key
            for key in source.keys() | lake.keys()
            if sorted(source.get(key, [])) != sorted(lake.get(key, []))
        }
        different_keys |= chunk_keys
        if not chunk_keys:  # never equal without a proof
            unsearched_chunks.append(chunk)
    unsearched = (source_sums.get(chunk, Sums()) for chunk in unsearched_chunks)
    comparison = Comparison(
        row_count=sum(sums.count + sums.left_out_count for sums in source_sums.values()),
        chunk_count=len(source_sums.keys() | lake_sums.keys()),
        unsearched_chunks=tuple(unsearched_chunks),
        unsearched_row_count=sum(sums.count for sums in unsearched),
    )
    return comparison, frozenset(different_keys)


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
