# SPDX-License-Identifier: Apache-2.0
"""Messages of a source's partition into DataHub's topics, in their order."""

from collections.abc import Iterable, Iterator, Mapping

from changelane.codec import get_codec
from changelane.conversion.partition import (
    Counts,
    Delivery,
    IncomingMessage,
    RejectedMessage,
    blocking_key_of,
)
from changelane.datahub.records import Placed, Records
from changelane.datahub.service import Service
from changelane.datahub.shard_writer import Limits, Patience, Record, RefusedRecord, Writer
from changelane.message import Message
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka_source import KafkaSource
from changelane.reason_codes import ReasonCode
from changelane.transforms.chain import Chain


class Sending:
    """Converts messages and writes what becomes of them.

    Args:
        source: What the messages are.
        sink: Where they go.
        service: The project.
        patience: Waits for it.
        chain: What becomes of events on the way.
        counts: Counted into.
        owners: The tables of topics, as far as they are known.
    """

    def __init__(
        self,
        source: KafkaSource,
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

    @property
    def owners(self) -> Mapping[str, str]:
        """The tables of topics, with those that came."""
        return self._records.owners

    def send(self, coming: Iterable[IncomingMessage]) -> Iterator[RejectedMessage]:
        """Write what becomes of messages; yield what is quarantined.

        Everything is written, or quarantined, once the iterator is at its end.

        Args:
            coming: Messages, partition by partition, each in its order.

        Raises:
            DeliveryError: Nothing can be written now.
        """
        place: tuple[str | None, int | None] | None = None
        for message, only, waits in coming:
            if place != (message.topic, message.partition):
                yield from self._take(self._delivery.flush())
                place = message.topic, message.partition
            yield from self._take(self._delivery.push(message, event_index=only, is_blocked=waits))
        yield from self._take(self._delivery.flush())
        for writer in self._writers.values():
            yield from self._refused(writer.flush())

    def _take(self, converted: Iterable[Message | RejectedMessage]) -> Iterator[RejectedMessage]:
        yield from (outcome for outcome in converted if isinstance(outcome, RejectedMessage))
        for placed in self._records.take():
            yield from self._refused(self._write(placed))

    def _write(self, placed: Placed) -> list[RefusedRecord]:
        writer = self._writers.get(placed.topic)
        if writer is None:
            writer = Writer(
                self._service, placed.topic, self._limits, self._patience, group=self._group
            )
            self._writers[placed.topic] = writer
        return writer.add_to_each(placed.record) if placed.to_each else writer.add(placed.record)

    def _refused(self, refused: Iterable[RefusedRecord]) -> Iterator[RejectedMessage]:
        reported: set[tuple[object, ...]] = set()
        for record, error in refused:
            self._counts.totals["written"] -= 1
            origin = record.origin
            event = *blocking_key_of(origin.message), origin.message.offset, origin.number
            if error is not None:
                reason = f"the topic never takes the record: {error}"
                yield self._delivery.reject(origin, ReasonCode.REFUSED_BY_DATAHUB, reason)
            elif event not in reported:
                yield self._delivery.reject_blocked(origin)
            reported.add(event)


def _group(record: Record) -> object:
    return blocking_key_of(record.origin.message)
