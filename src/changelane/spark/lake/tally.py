# SPDX-License-Identifier: Apache-2.0
"""What a table took so far, in numbers that its commits carry.

They stand in the table's own commit, beside the marker, so that a batch that comes again counts
once. Each commit tells the sums up to it.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.spark.events.survey import Work, lane
from changelane.spark.lake import Commit


class Tally(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a table took up to one of its commits.

    Attributes:
        applied: Changes of rows, those without effect among them, but none that was set aside.
        late: How many of them came in a batch behind one that had told newer ones of their lane.
        ties: For how many keys and positions a batch told two different whole rows, of which each
            column took the greater value.
        high: The newest order, as hexadecimal digits; nothing in the commits of older versions.
        source_time_us: The newest time at the source, microseconds since 1970-01-01 UTC.
        lanes: The newest order of each lane; both as hexadecimal digits.
    """

    applied: int = 0
    late: int = 0
    ties: int = 0
    high: str | None = None
    source_time_us: int | None = None
    lanes: Mapping[str, str] = {}

    @classmethod
    def of(cls, commit: Commit | None) -> "Tally":
        """Return what a table's newest commit tells."""
        return cls() if commit is None else msgspec.convert(commit.details, cls)

    def late_in(self, rows: DataFrame, work: Work) -> int:
        """Return how many changes of a batch come behind newer ones that the table took before.

        Args:
            rows: The ``data`` rows of the table.
            work: What the batch holds of it.
        """
        behind = [
            (lane(F.col("order")) == F.lit(bytearray(name)))
            & (F.col("order") <= F.lit(bytearray.fromhex(self.lanes[name.hex()])))
            for name, (oldest, _) in work.lanes.items()
            if oldest.hex() <= self.lanes.get(name.hex(), "")
        ]
        return rows.where(reduce(or_, behind)).count() if behind else 0

    def plus(self, work: Work, *, applied: int, late: int = 0, ties: int = 0) -> "Tally":
        """Return the sums with those of a batch."""
        newest = {name.hex(): newest.hex() for name, (_, newest) in work.lanes.items()}
        lanes = {name: max(order, self.lanes.get(name, "")) for name, order in newest.items()}
        times = [one for one in (self.source_time_us, work.time_us) if one is not None]
        return Tally(
            self.applied + applied,
            self.late + late,
            self.ties + ties,
            max(self.high or "", work.truncated.hex(), *newest.values()),
            max(times, default=None),
            {**self.lanes, **lanes},
        )

    @property
    def told(self) -> dict[str, Any]:
        """The same as details of a commit."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told
