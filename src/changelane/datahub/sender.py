# SPDX-License-Identifier: Apache-2.0
"""Sends the messages of source partitions to DataHub's topics, in their order."""

from collections.abc import Iterable, Iterator, Mapping

from changelane.codec import get_codec
from changelane.conversion.partition import (
    Counts,
    Delivery,
    IncomingMessage,
    RejectedMessage,
    blocking_key_of,
)
from changelane.datahub.records import Records, TopicRecord
from changelane.datahub.service import Service
from changelane.datahub.shard_writer import Limits, Patience, Record, RefusedRecord, Writer
from changelane.message import Message
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.topic_sink import OrderedSource
from changelane.reason_codes import ReasonCode
from changelane.transforms.chain import Chain


class Sending:
    """Converts messages to records and writes them.

    Args:
        source: The options of the source.
        sink: The options of the sink.
        service: The project.
        patience: The retries of its calls.
        chain: The transforms of events.
        counts: The totals to update.
        owners: Topic (lower case) -> its table, as far as known.
    """

    def __init__(
        self,
        source: OrderedSource,
        sink: DataHubSink,
        service: Service,
        patience: Patience,
        *,
        chain: Chain,
        counts: Counts,
        owners: Mapping[str, str] = {},
    ) -> None:
        self._service = service
        self._patience = patience
        self._limits = Limits(records=sink.batch_records, bytes=sink.batch_bytes)
        self._counts = counts
        self._records = Records(sink, service, patience, owners)
        self._delivery = Delivery(
            get_codec(source.format, **source.format_options),
            self._records,
            chain=chain,
            blocks_keys=sink.block_keys_on_error,
            counts=counts,
        )
        self._group = _group if sink.block_keys_on_error else None
        self._writers: dict[str, Writer] = {}
        self._rejected_events: set[tuple[object, ...]] = set()

    @property
    def owners(self) -> Mapping[str, str]:
        """The tables of topics, including those of this object."""
        return self._records.owners

    def send(self, messages: Iterable[IncomingMessage]) -> Iterator[RejectedMessage]:
        """Convert and write messages; yield the rejected messages.

        At the end of the iterator, every message is written or rejected.

        Args:
            messages: Messages, partition by partition, each in its order.

        Raises:
            DeliveryError: Writes are impossible now.
        """
        for outcomes in self._delivery.convert(messages):
            yield from self._take(outcomes)
        for writer in self._writers.values():
            yield from self._refused(writer.flush())

    def _take(self, converted: Iterable[Message | RejectedMessage]) -> Iterator[RejectedMessage]:
        yield from (outcome for outcome in converted if isinstance(outcome, RejectedMessage))
        for topic_record in self._records.take_records():
            yield from self._refused(self._write(topic_record))

    def _write(self, topic_record: TopicRecord) -> list[RefusedRecord]:
        writer = self._writers.get(topic_record.topic)
        if writer is None:
            writer = Writer(
                self._service, topic_record.topic, self._limits, self._patience, group=self._group
            )
            self._writers[topic_record.topic] = writer
        return (
            writer.add_to_each(topic_record.record)
            if topic_record.is_broadcast
            else writer.add(topic_record.record)
        )

    def _refused(self, refused: Iterable[RefusedRecord]) -> Iterator[RejectedMessage]:
        for record, error in refused:
            self._counts.totals["written"] -= 1
            origin = record.origin
            event = *blocking_key_of(origin.message), origin.message.offset, origin.number
            if event in self._rejected_events:  # by another record of it, maybe of another shard
                continue
            self._rejected_events.add(event)
            if error is not None:
                reason = f"the topic rejects the record: {error}"
                yield from self._delivery.reject(origin, ReasonCode.REFUSED_BY_DATAHUB, reason)
            else:
                yield from self._delivery.reject_blocked(origin)


def _group(record: Record) -> object:
    return blocking_key_of(record.origin.message)
