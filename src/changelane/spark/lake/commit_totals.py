# SPDX-License-Identifier: Apache-2.0
"""What a table took so far, in numbers that its commits carry.

They stand in the table's own commit, beside the marker, so that a batch that comes again counts
once. Each commit tells the sums up to it.
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
"""What commits of older versions tell of a table that takes every event."""


class CommitTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a table took up to one of its commits.

    Attributes:
        applied: Changes of rows, those without effect among them, but none that was quarantined.
        out_of_order: How many of them came in a batch behind one that had told newer ones. Offsets
            are not counted: each partition has its own, and gives them in their order.
        conflicts: For how many keys and positions a batch told two different whole rows, of which
            each column took the greater value.
        repeats: Where rows are only added: how many events came again, and added none.
        possible_duplicates: How many that added one may have come again.
        high: The newest order, as hexadecimal digits; nothing in the commits of older versions.
        source_time_us: The newest time at the source, microseconds since 1970-01-01 UTC.
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
        """Return what a table's newest commit tells."""
        details = {} if commit is None else commit.details
        if _KEY in details:
            return msgspec.convert(details[_KEY], cls)
        high = details.get(_HIGH)
        return cls(high=high if isinstance(high, str) else None)

    def out_of_order_count(self, rows: DataFrame, table_batch: TableBatch, kind: bytes) -> int:
        """Return how many changes of a batch come behind newer ones that the table took before.

        Args:
            rows: The ``data`` rows of the table.
            table_batch: What the batch holds of it.
            kind: The kind of positions that it compares (2 bytes).
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
        """Return the sums with those of a batch."""
        _, newest = table_batch.order_range(kind)
        times = [
            source_time_u
            for source_time_u in (self.source_time_us, table_batch.time_us)
            if source_time_u is not None
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
        """The same as details of a commit."""
        return {_KEY: msgspec.to_builtins(self)}
