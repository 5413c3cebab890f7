# SPDX-License-Identifier: Apache-2.0
"""The counters and reports of pipelines into topics, and the rows of their rejected messages."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import AccumulatorParam

from changelane.conversion.partition import Counts, RejectedMessage
from changelane.formats.contract.losses import loss_text
from changelane.message import Message
from changelane.pipeline.kafka_offsets import Lag, total_lag
from changelane.spark.rows import schema
from changelane.spark.rows.rejected import details_of
from changelane.spark.run.query import with_batch
from changelane.spark.state.quarantine import MAX_SHOWN, stop_error_of

TaskCounts: Final = Counter[tuple[str, ...]]
"""Counters by kind (``done``, ``loss``, ``refused``, ``topic``, ``stopped``) and labels."""


class DeliveryReport(msgspec.Struct):
    """The report of a batch.

    Attributes:
        batch: The number of the batch.
        messages: The messages that were read.
        events: The events of these messages.
        written: The messages that were sent.
        excluded: The events that transforms excluded.
        losses: The losses in the messages that were sent, by field and reason, such as
            ``position (a mysql position is not written)``.
        quarantined: The quarantined entries, by reason code.
        lag: The messages in the source after the batch, by topic and partition.
        seconds: The duration.
    """

    batch: int
    messages: int = 0
    events: int = 0
    written: int = 0
    excluded: int = 0
    losses: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    lag: Lag | None = None
    seconds: float = 0.0

    @property
    def behind(self) -> int | None:
        """The number of messages in the source after the batch."""
        return total_lag(self.lag)

    def joined(self, later: "DeliveryReport") -> "DeliveryReport":
        """Return the report of this batch and a later one together."""
        return DeliveryReport(
            batch=later.batch,
            messages=self.messages + later.messages,
            events=self.events + later.events,
            written=self.written + later.written,
            excluded=self.excluded + later.excluded,
            losses=dict(Counter(self.losses) + Counter(later.losses)),
            quarantined=dict(Counter(self.quarantined) + Counter(later.quarantined)),
            lag=later.lag,
            seconds=self.seconds + later.seconds,
        )


class DeliveriesReport(msgspec.Struct):
    """The report of a run into topics.

    Attributes:
        is_interrupted: Whether the user stopped the run; the next run continues from there.
    """

    pipeline: str
    batches: list[DeliveryReport] = []
    is_interrupted: bool = False

    def add(self, batch: DeliveryReport) -> None:
        """Add the report of a batch."""
        self.batches = with_batch(self.batches, batch)

    @property
    def total(self) -> int:
        """The number of messages that were read, or of events if greater."""
        return sum(max(batch.messages, batch.events) for batch in self.batches)

    @property
    def quarantined(self) -> dict[str, int]:
        """The number of quarantined entries, by reason code."""
        total: Counter[str] = Counter()
        for batch in self.batches:
            total.update(batch.quarantined)
        return dict(total)


def report_of(batch: int, counts: "Counter[tuple[str, ...]]") -> DeliveryReport:
    """Return the report of a batch from the counters of its tasks."""
    report = DeliveryReport(batch)
    for (kind, *labels), count in sorted(counts.items()):
        if kind == "done":
            setattr(report, labels[0], count)
        elif kind == "loss":
            report.losses[loss_text((labels[0], labels[1]))] = count
        elif kind == "refused":
            report.quarantined[labels[0]] = count
    return report


class TaskCountsParam(AccumulatorParam["Counter[tuple[str, ...]]"]):
    """Adds up the counters of tasks; a task adds its own once, at its end.

    Sending is the last operation of a stage, so Spark adds the counters of a successful task once,
    and those of a failed task never.
    """

    def zero(self, value: "Counter[tuple[str, ...]]") -> "Counter[tuple[str, ...]]":
        del value
        return TaskCounts()

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: "Counter[tuple[str, ...]]", value2: "Counter[tuple[str, ...]]"
    ) -> "Counter[tuple[str, ...]]":
        value1.update(value2)
        return value1


def task_counts_of(counts: Counts) -> "Counter[tuple[str, ...]]":
    """Return the counters of a task."""
    total = TaskCounts({("done", name): count for name, count in counts.totals.items()})
    total.update({("loss", *loss): count for loss, count in counts.losses.items()})
    total.update({("refused", code): count for code, count in counts.refused.items()})
    return total


def stop_count_of(rejected: RejectedMessage) -> "Counter[tuple[str, ...]]":
    """Return the counter of a task that stops at a rejected message."""
    where = rejected.origin.message.where
    return TaskCounts({("stopped", f"{rejected.code} in {where}: {rejected.reason}"): 1})


def check_stop(report: DeliveryReport, counts: "Counter[tuple[str, ...]]") -> None:
    """Raise if a task stopped at a rejected message.

    Raises:
        BudgetError: A task did.
    """
    if report.quarantined:
        places = sorted(labels[0] for kind, *labels in counts if kind == "stopped")
        raise stop_error_of(report.quarantined, places[:MAX_SHOWN])


def rejected_rows(results: Iterable[Message | RejectedMessage]) -> Iterator[pa.RecordBatch]:
    """Return the rejected messages as event rows, and skip the others."""
    for rows in _row_batches(results):
        yield schema.arrow_batch(rows)


def _row_batches(results: Iterable[Message | RejectedMessage]) -> Iterator[list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for result in results:
        if not isinstance(result, RejectedMessage):
            continue
        message = result.origin.message
        rows.append(_error_row(result, message))
        size += 200 + len(message.value or b"")
        if size >= schema.MAX_BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _error_row(rejected: RejectedMessage, message: Message) -> tuple[Any, ...]:
    row: list[Any] = list(schema.EMPTY_ROW)
    columns = {
        "kind": "error",
        "table_id": None if rejected.table is None else schema.table_id_text(rejected.table),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "row_index": rejected.origin.number,
        "code": rejected.code,
        "reason": rejected.reason,
        "path": rejected.path,
        "after": details_of(message, is_masked=rejected.is_withheld),
        "raw_key": message.key,
        "raw_value": message.value,
    }
    for name, value in columns.items():
        row[schema.FIELD_INDEX[name]] = value
    return tuple(row)
