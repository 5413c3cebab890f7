# SPDX-License-Identifier: Apache-2.0
"""The figures of a run: of one batch, and of all batches so far.

The live line, the JSON lines and the metrics are three renderings of these figures. They contain
numbers and the names of topics and tables, never a value of a row.
"""

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from changelane.pipeline.kafka_offsets import Lag

if TYPE_CHECKING:
    from changelane.spark.rows.batch_stats import BatchReport
    from changelane.spark.sinks.report import DeliveryReport


class Figures(msgspec.Struct, frozen=True):
    """The figures of one batch.

    Attributes:
        time: The end of the batch, in UTC.
        pipeline: The pipeline's name.
        batch: The number of the batch.
        seconds: The duration of the batch.
        messages_in: The number of messages from topics, for tables by their offsets; ``None`` for
            files, because their lines are not counted.
        events: The number of events of tables.
        messages_out: The number of sent messages; ``None`` for a sink of tables.
        in_per_s: Messages (or events, if messages are not counted) per second since the end of the
            previous batch.
        out_per_s: Sent messages, or events applied to tables, per second.
        lag: The number of unread messages of each partition of the source.
        tables: The number of events of each table that applied some, including quarantined events.
        possible_duplicates: The number of possible duplicates that each table added, if any.
        quarantined: The number of quarantined events by reason code.
        losses: The losses of sent messages.
        is_merge: Pending events of the change log were merged, and no messages were read.
        warnings: Table -> a warning of this batch.
    """

    time: dt.datetime
    pipeline: str
    batch: int
    seconds: float
    messages_in: int | None
    events: int
    messages_out: int | None
    in_per_s: float
    out_per_s: float
    lag: Lag | None
    tables: dict[str, int]
    possible_duplicates: dict[str, int]
    quarantined: dict[str, int]
    losses: dict[str, int] = {}
    is_merge: bool = False
    warnings: dict[str, str] = {}


def figures(
    pipeline: str, report: "BatchReport | DeliveryReport", time: dt.datetime, passed_s: float
) -> Figures:
    """Return the figures of a batch.

    Args:
        pipeline: The pipeline's name.
        report: The report of the batch.
        time: The end of the batch.
        passed_s: The seconds since the end of the previous batch.
    """
    tables: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    for table in getattr(report, "tables", ()):
        if table.is_applied:
            tables[table.table] += table.events
            possible[table.table] += table.possible_duplicates
    sent: int | None = getattr(report, "written", None)
    passed_s = max(passed_s, report.seconds, 0.001)
    events = report.events if report.messages is None else report.messages
    return Figures(
        time=time,
        pipeline=pipeline,
        batch=report.batch,
        seconds=round(report.seconds, 3),
        messages_in=report.messages,
        events=report.events,
        messages_out=sent,
        in_per_s=round(events / passed_s, 1),
        out_per_s=round((sum(tables.values()) if sent is None else sent) / passed_s, 1),
        lag=report.lag,
        tables=dict(tables),
        possible_duplicates=dict(+possible),
        quarantined=report.quarantined,
        losses=getattr(report, "losses", {}),
        is_merge=getattr(report, "is_merge", False),
        warnings={
            table.table: table.warning for table in getattr(report, "tables", ()) if table.warning
        },
    )


class Totals(msgspec.Struct, frozen=True):
    """The totals of all batches of a run so far; other attributes are those of :class:`Figures`.

    Attributes:
        batches: The number of batches.
        seconds: Their duration.
        last: The newest batch.
    """

    batches: int = 0
    seconds: float = 0.0
    messages_in: int | None = None
    events: int = 0
    messages_out: int | None = None
    tables: dict[str, int] = {}
    possible_duplicates: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    losses: dict[str, int] = {}
    last: Figures | None = None

    @property
    def lag(self) -> Lag | None:
        """The number of unread messages of each partition of the source after the newest batch."""
        return None if self.last is None else self.last.lag

    def plus(self, figures: Figures) -> "Totals":
        """Return the totals with another batch."""
        is_batch = not figures.is_merge
        return Totals(
            batches=self.batches + is_batch,
            seconds=self.seconds + (figures.seconds if is_batch else 0.0),
            messages_in=_sum(self.messages_in, figures.messages_in),
            events=self.events + figures.events,
            messages_out=_sum(self.messages_out, figures.messages_out),
            tables=dict(Counter(self.tables) + Counter(figures.tables)),
            possible_duplicates=dict(
                Counter(self.possible_duplicates) + Counter(figures.possible_duplicates)
            ),
            quarantined=dict(Counter(self.quarantined) + Counter(figures.quarantined)),
            losses=dict(Counter(self.losses) + Counter(figures.losses)),
            last=figures if is_batch else self.last,
        )


def _sum(first: int | None, two: int | None) -> int | None:
    return first if two is None else two + (first or 0)
