# SPDX-License-Identifier: Apache-2.0
"""The counters of a table, in the metadata of its commits.

Each commit contains the totals up to it, beside the marker, so that a repeated batch counts once.
"""

from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.position import BY_PARTITION
from changelane.spark.lake.interface import Commit
from changelane.spark.rows.batch_stats import TableBatch

_KEY: Final = "tally"
_HIGH: Final = "high"
"""The newest order of an append table, in commits of older versions of changelane."""


class CommitTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """The totals of a table up to one of its commits.

    Attributes:
        applied: The number of row changes, including those without effect, but not quarantined
            ones.
        out_of_order: The number of changes older than a change of an earlier batch. Offsets do
            not count: each partition has its own, in their order.
        conflicts: The number of keys and positions with two different full rows in one batch;
            each column took the greater value.
        repeats: In a table that only adds rows, the number of repeated events that added none.
        possible_duplicates: The number of added rows that may be repeated.
        high: The newest order, in hex digits; ``None`` in commits of older versions.
        source_time_us: The newest source time, microseconds since 1970-01-01 UTC.
    """

    applied: int = 0
    out_of_order: int = 0
    conflicts: int = 0
    repeats: int = 0
    possible_duplicates: int = 0
    high: str | None = None
    source_time_us: int | None = None

    @classmethod
    def of(cls, commit: Commit | None) -> "CommitTotals":
        """Return the totals in a table's newest commit."""
        details = {} if commit is None else commit.details
        if _KEY in details:
            return msgspec.convert(details[_KEY], cls)
        high = details.get(_HIGH)
        return cls(high=high if isinstance(high, str) else None)

    def is_older_than(self, order: bytes) -> bool:
        """Return whether every change so far is known to be older than an order."""
        return self.high is not None and order.hex() > self.high

    def out_of_order_count(self, rows: DataFrame, table_batch: TableBatch, kind: bytes) -> int:
        """Return the number of a batch's changes that are older than the newest order so far.

        Args:
            rows: The ``data`` rows of the table.
            table_batch: The statistics of the table's events.
            kind: The kind of positions that the table compares (2 bytes).
        """
        oldest, _ = table_batch.order_range(kind)
        if (kind[1:] and kind[1] in BY_PARTITION) or not oldest or oldest.hex() > (self.high or ""):
            return 0
        return rows.where(F.col("order") <= F.lit(bytearray.fromhex(self.high or ""))).count()

    def plus(
        self,
        table_batch: TableBatch,
        kind: bytes,
        *,
        applied: int,
        out_of_order: int = 0,
        conflicts: int = 0,
        repeats: int = 0,
        possible_duplicates: int = 0,
    ) -> "CommitTotals":
        """Return the totals after a batch."""
        _, newest = table_batch.order_range(kind)
        times = [
            time_us for time_us in (self.source_time_us, table_batch.time_us) if time_us is not None
        ]
        return CommitTotals(
            applied=self.applied + applied,
            out_of_order=self.out_of_order + out_of_order,
            conflicts=self.conflicts + conflicts,
            repeats=self.repeats + repeats,
            possible_duplicates=self.possible_duplicates + possible_duplicates,
            high=max(self.high or "", table_batch.newest_truncate.hex(), newest.hex()),
            source_time_us=max(times, default=None),
        )

    @property
    def properties(self) -> dict[str, Any]:
        """The totals in the details of a commit."""
        return {_KEY: msgspec.to_builtins(self)}
