# SPDX-License-Identifier: Apache-2.0
"""The figures of a run: what one batch did, and what all of them did up to now.

The live line, the JSON lines and the metrics are three renderings of these and of nothing else.
They hold names of topics and tables and numbers, never a value of a row.
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
    """What one batch did.

    Attributes:
        time: When it was over, in UTC.
        pipeline: The pipeline's name.
        batch: Its number.
        seconds: How long it took.
        messages_in: Messages that it took from topics, by their offsets where they go into tables;
            ``None`` = lines of files, which nobody counts.
        events: Events that they told, of tables.
        messages_out: Messages that it sent; ``None`` = it went into tables.
        in_per_s: Messages, or where they are not counted events, a second: since the end of the
            batch before.
        out_per_s: Messages that were sent, or events that tables took, a second.
        lag: How many messages each partition of the source held behind it.
        tables: How many events came for each table that took them, those that were quarantined
            among them.
        possible_duplicates: How many rows each table added that it may hold already, where there
            were some.
        quarantined: How many events were quarantined, by reason code.
        losses: What the format of the sink could not carry of messages that were sent.
        is_merge: Tables took what waited for them in the change log, and nothing was read.
        warnings: What is to be said of tables once, in this batch.
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
        report: What the batch did.
        time: When it was over.
        passed_s: How many seconds before that the one before it was over.
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
    """What all batches of a run did up to now.

    Attributes:
        batches: How many there were.
        seconds: How long they took.
        messages_in: As in :class:`Figures`, and so are the others.
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
        """How many messages each partition of the source held behind the newest batch."""
        return None if self.last is None else self.last.lag

    def plus(self, figures: Figures) -> "Totals":
        """Return what was done with one batch more."""
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
