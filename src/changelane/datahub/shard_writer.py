# SPDX-License-Identifier: Apache-2.0
"""Writes records to the shards of one topic: in batches, in order, without losses.

Only one request is sent at a time, so a shard gets a record only after all earlier ones. If the
service may write a part of a request ("HTTP 200 with partial failures"), a request contains no two
records with a common order. So only failed records are sent again, and no record overtakes another.
A request without an answer is sent again completely: delivery is at least once.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from changelane.conversion.partition import DeliveryError
from changelane.datahub.service import Content, Reaction, Service, ServiceError, Shards

T = TypeVar("T")

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 10.0


class Record(NamedTuple):
    """A record to write.

    Attributes:
        content: The content of the record.
        size: Its approximate size in bytes.
        hash_key: Its hash key, which determines the shard.
        order: Records with equal texts keep their order.
        origin: The origin of the record, for the caller.
    """

    content: Content
    size: int
    hash_key: int
    order: str
    origin: Any = None


class RefusedRecord(NamedTuple):
    """A rejected record and its error; ``None`` if it must wait for another rejected record."""

    record: Record
    error: ServiceError | None


class Limits(msgspec.Struct, frozen=True):
    """The limits of requests and buffers.

    Attributes:
        records: The maximum number of records of a request.
        bytes: The maximum size of a request in bytes; a larger record has its own request.
        buffered_bytes: The maximum size of the buffers of all shards in bytes.
    """

    records: int = 1_000
    bytes: int = 1_000_000
    buffered_bytes: int = 32_000_000


class WriteError(DeliveryError):
    """Writes are impossible now; the batch must be repeated."""


class Patience:
    """Retries with exponential backoff, up to a maximum time.

    Args:
        retry_s: The maximum time without success, in seconds.
        clock: Returns a monotonic time in seconds.
        sleep: Waits for a number of seconds.
        chance: Returns a random number from 0 to 1, for the jitter of the waits.
    """

    def __init__(
        self,
        retry_s: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        chance: Callable[[], float],
    ) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._attempt = 0
        self._since = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether no retry is in progress."""
        return self._attempt == 0

    def reset(self) -> None:
        """Reset the backoff after a success."""
        self._attempt = 0

    def wait(self, action: str, error: ServiceError) -> None:
        """Wait before the next attempt.

        Raises:
            WriteError: The maximum time is exceeded.
        """
        now = self._clock()
        if self._attempt == 0:
            self._since = now
        waited = now - self._since
        if waited >= self._retry_s:
            raise WriteError(f"{action}: no progress for {waited:.0f} seconds: {error}")
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        self._sleep(longest * (0.5 + 0.5 * self._chance()))

    def call(self, action: str, request: Callable[[], T]) -> T:
        """Return the result of a call, with retries.

        Raises:
            ServiceError: The error is permanent.
            WriteError: The maximum time is exceeded.
        """
        is_fresh = self.is_fresh
        while True:
            try:
                answer = request()
            except ServiceError as error:
                if error.reaction is not Reaction.RETRY:
                    raise
                self.wait(action, error)
            else:
                if is_fresh:
                    self.reset()
                return answer


class Writer:
    """Writes to one topic.

    Args:
        service: The project.
        topic: The topic.
        limits: The limits of requests and buffers.
        patience: The retries.
        group: Returns the group of a record. If a record is rejected, the unsent records of its
            group are returned, too.

    Raises:
        ServiceError, WriteError: As :meth:`flush`.
    """

    def __init__(
        self,
        service: Service,
        topic: str,
        limits: Limits,
        patience: Patience,
        *,
        group: Callable[[Record], object] | None = None,
    ) -> None:
        self._group = group
        self._service = service
        self._topic = topic
        self._limits = limits
        self._patience = patience
        self._queues: dict[str, deque[tuple[int, Record]]] = {}
        self._sizes: dict[str, int] = {}
        self._request_limits: dict[str, int] = {}  # during the search for an invalid record
        self._buffered_bytes = 0
        self._count = 0
        self._shards = Shards(())
        self._distribute([])

    def add(self, record: Record) -> list[RefusedRecord]:
        """Add a record, and write complete requests; return the rejected records.

        Raises:
            ServiceError, WriteError: As :meth:`flush`.
        """
        shard = self._shards.of(record.hash_key)
        entry = (self._count, record)
        self._count += 1
        if shard is None:
            self._distribute([entry])
            shard = self._shards.of(record.hash_key)
        else:
            self._append(shard, entry)
        refused: list[RefusedRecord] = []
        while shard is not None and self._is_full(shard):
            refused += self._put(shard)
        while self._buffered_bytes >= self._limits.buffered_bytes:
            refused += self._put(max(self._sizes, key=self._sizes.__getitem__))
        return refused

    def add_to_each(self, record: Record) -> list[RefusedRecord]:
        """Add a record once for each active shard; see :meth:`add`."""
        refused: list[RefusedRecord] = []
        for shard in self._shards.active:
            refused += self.add(record._replace(hash_key=shard.begin))
        return refused

    def flush(self) -> list[RefusedRecord]:
        """Write all buffered records; return the rejected records.

        Raises:
            ServiceError: The error is permanent: a missing permission, a deleted topic.
            WriteError: The service accepted no record for too long.
        """
        refused: list[RefusedRecord] = []
        while (shard := next((name for name, q in self._queues.items() if q), None)) is not None:
            refused += self._put(shard)
        return refused

    def _append(self, shard: str, entry: tuple[int, Record]) -> None:
        self._queues.setdefault(shard, deque()).append(entry)
        self._sizes[shard] = self._sizes.get(shard, 0) + entry[1].size
        self._buffered_bytes += entry[1].size

    def _is_full(self, shard: str) -> bool:
        """Whether the queue of a shard, which may not exist any more, fills a request."""
        queue = self._queues.get(shard, ())
        limits = self._limits
        return len(queue) >= limits.records or self._sizes.get(shard, 0) >= limits.bytes

    def _take(self, shard: str) -> list[tuple[int, Record]]:
        """Remove the records of the next request from a shard's queue."""
        queue, limits = self._queues[shard], self._limits
        limit = self._request_limits.get(shard, limits.records)
        batch: list[tuple[int, Record]] = []
        orders: set[str] = set()
        size = 0
        while queue and len(batch) < limit:
            record = queue[0][1]
            if batch and size + record.size > limits.bytes:
                break
            if not self._service.writes_all_or_none and record.order in orders:
                break
            orders.add(record.order)
            size += record.size
            batch.append(queue.popleft())
        self._sizes[shard] -= size
        self._buffered_bytes -= size
        return batch

    def _put(self, shard: str) -> list[RefusedRecord]:
        """Write one request; records that were not written return to the front of the queue."""
        batch = self._take(shard)
        refused: list[RefusedRecord] = []
        unwritten: list[tuple[int, Record]] = []
        reactions: set[Reaction] = set()
        try:
            failed = self._service.put(self._topic, shard, [record.content for _, record in batch])
        except ServiceError as request_error:
            if request_error.reaction is Reaction.REJECT and len(batch) > 1:
                # one record is invalid: halve requests until it is alone
                self._request_limits[shard] = len(batch) // 2
                self._requeue(shard, batch)
                return []
            failed = dict.fromkeys(range(len(batch)), request_error)
        for index, entry in enumerate(batch):
            if (error := failed.get(index)) is None:
                continue
            if error.reaction is Reaction.FAIL:
                raise error
            if error.reaction is Reaction.REJECT:
                refused.append(RefusedRecord(entry[1], error))
            else:
                reactions.add(error.reaction)
                unwritten.append(entry)
        self._requeue(shard, unwritten)
        if refused and self._group is not None:
            refused += self._take_blocked({self._group(rejected.record) for rejected in refused})
        if len(unwritten) < len(batch):
            self._patience.reset()
            self._widen(shard, is_success=bool(refused))
        if reactions:
            waiting = next(e for e in failed.values() if e.reaction is not Reaction.REJECT)
            self._patience.wait(f"topic {self._topic}", waiting)
        if Reaction.REASSIGN in reactions:
            self._distribute([])
        return refused

    def _take_blocked(self, groups: set[object]) -> list[RefusedRecord]:
        """Remove the records of some groups from all queues.

        None of them is written yet: a request with a rejected record contains no other record of
        its order, or is rejected completely until that record is alone.
        """
        group = self._group
        later_records: list[tuple[int, Record]] = []
        for shard, queue in self._queues.items():
            blocked = {
                entry[0]: entry
                for entry in queue
                if group is not None and group(entry[1]) in groups
            }
            if blocked:
                self._queues[shard] = deque(entry for entry in queue if entry[0] not in blocked)
                size = sum(record.size for _, record in blocked.values())
                self._sizes[shard] -= size
                self._buffered_bytes -= size
                later_records += blocked.values()
        return [
            RefusedRecord(record, None)
            for _, record in sorted(later_records, key=lambda entry: entry[0])
        ]

    def _requeue(self, shard: str, batch: list[tuple[int, Record]]) -> None:
        self._queues[shard].extendleft(reversed(batch))
        size = sum(record.size for _, record in batch)
        self._sizes[shard] += size
        self._buffered_bytes += size

    def _widen(self, shard: str, *, is_success: bool) -> None:
        """Increase the size of requests again after the search for an invalid record."""
        limit = self._request_limits.pop(shard, None)
        if limit is not None and not is_success and 2 * limit < self._limits.records:
            self._request_limits[shard] = 2 * limit

    def _distribute(self, records: list[tuple[int, Record]]) -> None:
        """List the shards, and distribute all waiting records to them, in their order."""
        waiting = [entry for queue in self._queues.values() for entry in queue] + records
        waiting.sort(key=lambda entry: entry[0])
        is_fresh = self._patience.is_fresh
        while True:
            shards = self._patience.call(
                f"topic {self._topic}", lambda: self._service.shards(self._topic)
            )
            self._shards = Shards(shards)
            assigned = [(self._shards.of(entry[1].hash_key), entry) for entry in waiting]
            if self._shards.active and all(shard is not None for shard, _ in assigned):
                break
            if self._shards.is_settled:
                msg = (
                    f"the active shards of topic {self._topic} do not cover all hash keys, as in "
                    "the expansion mode: use a topic without expansion mode"
                )
                raise WriteError(msg)
            opening = ServiceError("InvalidShardOperation")
            self._patience.wait(f"topic {self._topic}", opening)
        if is_fresh:
            self._patience.reset()
        self._queues, self._sizes, self._request_limits, self._buffered_bytes = {}, {}, {}, 0
        for shard, entry in assigned:
            if shard is not None:
                self._append(shard, entry)
