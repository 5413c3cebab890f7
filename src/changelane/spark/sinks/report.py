# SPDX-License-Identifier: Apache-2.0
"""What deliveries into topics did: counted by tasks, told by batch, and set aside as rows."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import DataFrame

from changelane.conversion.partition import Counts, Refused
from changelane.formats.contract.losses import loss_text
from changelane.message import Message
from changelane.pipeline.kafka import Lag, behind
from changelane.spark.lake.interface import Marker
from changelane.spark.rows import schema
from changelane.spark.rows.rejected import rest_of
from changelane.spark.run.query import with_batch
from changelane.spark.sinks.blocked_keys import Read
from changelane.spark.state.quarantine import SHOWN_PLACES, stopped_at

Tally: Final = Counter[tuple[str, ...]]
"""Counts by kind (``done``, ``loss``, ``refused``, ``topic``, ``stopped``) and words."""


class Sender(Protocol):
    """Sends batches."""

    def send(
        self, told: DataFrame, read: Read, marker: Marker, *, goes_on: bool = False
    ) -> "DeliveryReport":
        """Send one batch; sending it again repeats its messages, and sets nothing aside twice.

        Args:
            told: Rows.
            read: Returns the messages that they tell.
            marker: The batch.
            goes_on: Whatever the options say, it does not stop at what cannot be sent.

        Raises:
            BudgetError: Something cannot be sent, and the options say that it stops at that.
        """
        ...


class DeliveryReport(msgspec.Struct):
    """What a batch did.

    Attributes:
        batch: Its number.
        messages: Messages that were read.
        events: Events that they told.
        written: Messages that were sent.
        excluded: Events that the transforms left out.
        losses: What the target format could not carry of messages that were sent, by field and
            reason, such as ``position (a mysql position is not written)``.
        quarantined: What was set aside, by reason code.
        lag: How many messages the source held behind it.
        seconds: How long it took.
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
        """How many messages its source held behind it."""
        return behind(self.lag)

    def joined(self, later: "DeliveryReport") -> "DeliveryReport":
        """Return what this batch and a later one did together."""
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
    """What a run into topics did.

    Attributes:
        is_interrupted: Somebody stopped it; what it did not come to waits for the next run.
    """

    pipeline: str
    batches: list[DeliveryReport] = []
    is_interrupted: bool = False

    def add(self, batch: DeliveryReport) -> None:
        """Tell of a batch."""
        self.batches = with_batch(self.batches, batch)

    @property
    def total(self) -> int:
        """How many messages were read, or events, where these are more."""
        return sum(max(batch.messages, batch.events) for batch in self.batches)

    @property
    def quarantined(self) -> dict[str, int]:
        """What was set aside, by reason code."""
        total: Counter[str] = Counter()
        for batch in self.batches:
            total.update(batch.quarantined)
        return dict(total)


def reported(batch: int, told: "Counter[tuple[str, ...]]") -> DeliveryReport:
    """Return what the tasks of a batch counted as its report."""
    report = DeliveryReport(batch)
    for (kind, *words), count in sorted(told.items()):
        if kind == "done":
            setattr(report, words[0], count)
        elif kind == "loss":
            report.losses[loss_text((words[0], words[1]))] = count
        elif kind == "refused":
            report.quarantined[words[0]] = count
    return report


class Tallies(AccumulatorParam["Counter[tuple[str, ...]]"]):
    """Adds up what tasks counted: each tells it once, at its end.

    Sending is the last thing that a stage does, so Spark adds the counts of a task that succeeded
    once, and none of one that failed.
    """

    def zero(self, value: "Counter[tuple[str, ...]]") -> "Counter[tuple[str, ...]]":
        del value
        return Tally()

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: "Counter[tuple[str, ...]]", value2: "Counter[tuple[str, ...]]"
    ) -> "Counter[tuple[str, ...]]":
        value1.update(value2)
        return value1


def tally_of(counted: Counts) -> "Counter[tuple[str, ...]]":
    """Return what a task counted."""
    total = Tally({("done", name): count for name, count in counted.done.items()})
    total.update({("loss", *loss): count for loss, count in counted.losses.items()})
    total.update({("refused", code): count for code, count in counted.refused.items()})
    return total


def stopped_in(refused: Refused) -> "Counter[tuple[str, ...]]":
    """Return what a task counts that stops at what cannot be sent."""
    where = refused.origin.message.where
    return Tally({("stopped", f"{refused.code} in {where}: {refused.reason}"): 1})


def check_stopped(report: DeliveryReport, told: "Counter[tuple[str, ...]]") -> None:
    """Stop where tasks met something that cannot be sent.

    Raises:
        BudgetError: They did.
    """
    if report.quarantined:
        places = sorted(words[0] for kind, *words in told if kind == "stopped")
        raise stopped_at(report.quarantined, places[:SHOWN_PLACES])


def refused_rows(told: Iterable[Message | Refused]) -> Iterator[pa.RecordBatch]:
    """Return what was refused as event rows; messages that were not are left out."""
    for part in _in_parts(told):
        yield schema.to_arrow(part)


def _in_parts(told: Iterable[Message | Refused]) -> Iterator[list[tuple[Any, ...]]]:
    gathered: list[tuple[Any, ...]] = []
    size = 0
    for one in told:
        if not isinstance(one, Refused):
            continue
        message = one.origin.message
        gathered.append(_error_row(one, message))
        size += 200 + len(message.value or b"")
        if size >= schema.MAX_BATCH_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _error_row(refused: Refused, message: Message) -> tuple[Any, ...]:
    row: list[Any] = list(schema.EMPTY)
    told = {
        "kind": "error",
        "table_id": None if refused.table is None else schema.table_id_text(refused.table),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "row_index": refused.origin.number,
        "code": refused.code,
        "reason": refused.reason,
        "path": refused.path,
        "after": rest_of(message, is_masked=refused.is_withheld),
        "raw_key": message.key,
        "raw_value": message.value,
    }
    for name, value in told.items():
        row[schema.AT[name]] = value
    return tuple(row)
