# SPDX-License-Identifier: Apache-2.0
"""Records to the shards of one topic: in batches, in their order, none lost.

At any time one request is under way, so that nothing is sent to a shard before what lies before it
was taken. Where a service may take a part of a request ("HTTP 200 with partial failures"),
no request holds two records whose order counts: only those that failed are sent again, and nothing
overtakes them. A request whose answer is lost is sent again as a whole: at least once.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from changelane.conversion.partition import DeliveryError
from changelane.datahub.service import Content, Fate, Service, ServiceError, Shards

T = TypeVar("T")

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 10.0


class Record(NamedTuple):
    """A record on its way.

    Attributes:
        content: What is written.
        size: About how many bytes it has.
        place: Its hash key, which chooses the shard.
        order: Records of the same text keep their order.
        origin: Where it came from, for whoever asked for it to be written.
    """

    content: Content
    size: int
    place: int
    order: str
    origin: Any = None


class RefusedRecord(NamedTuple):
    """A record that the service never takes, and its reason; ``None`` = it waits for another."""

    record: Record
    error: ServiceError | None


class Limits(msgspec.Struct, frozen=True):
    """How much is sent and kept.

    Attributes:
        records: Records of a request.
        bytes: Bytes of a request; a larger record goes alone.
        held_bytes: Bytes that wait for all shards.
    """

    records: int = 1_000
    bytes: int = 1_000_000
    held_bytes: int = 32_000_000


class WriteError(DeliveryError):
    """Nothing can be written now: the batch has to come again."""


class Patience:
    """Waits between attempts, longer each time, until it is too long.

    Args:
        retry_s: How many seconds nothing may go on.
        clock: Seconds that only grow.
        sleep: Waits so many seconds.
        chance: A number from 0 to 1, by which waits of different tasks differ.
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
        """Whether nothing is waited for."""
        return self._attempt == 0

    def went_on(self) -> None:
        """Begin anew: something was done."""
        self._attempt = 0

    def wait(self, action: str, error: ServiceError) -> None:
        """Wait before the next attempt.

        Raises:
            WriteError: It took too long already.
        """
        now = self._clock()
        if self._attempt == 0:
            self._since = now
        waited = now - self._since
        if waited >= self._retry_s:
            raise WriteError(f"{action} did not go on for {waited:.0f} seconds: {error}")
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        self._sleep(longest * (0.5 + 0.5 * self._chance()))

    def call(self, action: str, ask: Callable[[], T]) -> T:
        """Return an answer, asked for until it comes.

        Raises:
            ServiceError: Waiting does not help.
            WriteError: It took too long.
        """
        is_fresh = self.is_fresh
        while True:
            try:
                answer = ask()
            except ServiceError as error:
                if error.fate is not Fate.WAIT:
                    raise
                self.wait(action, error)
            else:
                if is_fresh:
                    self.went_on()
                return answer


class Writer:
    """Writes to one topic.

    Args:
        service: The project.
        topic: The topic.
        limits: How much is sent and kept.
        patience: Waits between attempts.
        group: Returns of records what they have in common that wait for a refused one; what of it
            is not sent yet is returned together with that one.

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
        self._most: dict[str, int] = {}  # while a bad record is searched for
        self._held = 0
        self._count = 0
        self._shards = Shards(())
        self._deal([])

    def add(self, record: Record) -> list[RefusedRecord]:
        """Take a record, and write what is enough for a request; return what was refused.

        Raises:
            ServiceError, WriteError: As :meth:`flush`.
        """
        shard = self._shards.of(record.place)
        entry = (self._count, record)
        self._count += 1
        if shard is None:
            self._deal([entry])
            shard = self._shards.of(record.place)
        else:
            self._append(shard, entry)
        refused: list[RefusedRecord] = []
        while shard is not None and self._is_full(shard):
            refused += self._put(shard)
        while self._held >= self._limits.held_bytes:
            refused += self._put(max(self._sizes, key=self._sizes.__getitem__))
        return refused

    def add_to_each(self, record: Record) -> list[RefusedRecord]:
        """Take a record once for each active shard; see :meth:`add`."""
        refused: list[RefusedRecord] = []
        for shard in self._shards.active:
            refused += self.add(record._replace(place=shard.begin))
        return refused

    def flush(self) -> list[RefusedRecord]:
        """Write everything; return what was refused.

        Raises:
            ServiceError: Nothing helps but a person: a right is missing, the topic is gone.
            WriteError: The service took nothing for too long.
        """
        refused: list[RefusedRecord] = []
        while (shard := next((name for name, q in self._queues.items() if q), None)) is not None:
            refused += self._put(shard)
        return refused

    def _append(self, shard: str, entry: tuple[int, Record]) -> None:
        self._queues.setdefault(shard, deque()).append(entry)
        self._sizes[shard] = self._sizes.get(shard, 0) + entry[1].size
        self._held += entry[1].size

    def _is_full(self, shard: str) -> bool:
        """Say whether enough for a request waits for a shard, which may be gone meanwhile."""
        queue = self._queues.get(shard, ())
        limits = self._limits
        return len(queue) >= limits.records or self._sizes.get(shard, 0) >= limits.bytes

    def _take(self, shard: str) -> list[tuple[int, Record]]:
        """Take the records of the next request from a shard's queue."""
        queue, limits = self._queues[shard], self._limits
        limit = self._most.get(shard, limits.records)
        batch: list[tuple[int, Record]] = []
        orders: set[str] = set()
        size = 0
        while queue and len(batch) < limit:
            record = queue[0][1]
            if batch and size + record.size > limits.bytes:
                break
            if not self._service.is_whole and record.order in orders:
                break
            orders.add(record.order)
            size += record.size
            batch.append(queue.popleft())
        self._sizes[shard] -= size
        self._held -= size
        return batch

    def _put(self, shard: str) -> list[RefusedRecord]:
        """Write one request; what was not written stands in front of its queue again."""
        batch = self._take(shard)
        refused: list[RefusedRecord] = []
        back: list[tuple[int, Record]] = []
        fates: set[Fate] = set()
        try:
            failed = self._service.put(self._topic, shard, [record.content for _, record in batch])
        except ServiceError as request_error:
            if request_error.fate is Fate.RECORD and len(batch) > 1:
                # one of them is bad: they go in halves until it goes alone
                self._most[shard] = len(batch) // 2
                self._back(shard, batch)
                return []
            failed = dict.fromkeys(range(len(batch)), request_error)
        for index, entry in enumerate(batch):
            if (error := failed.get(index)) is None:
                continue
            if error.fate is Fate.STOP:
                raise error
            if error.fate is Fate.RECORD:
                refused.append(RefusedRecord(entry[1], error))
            else:
                fates.add(error.fate)
                back.append(entry)
        self._back(shard, back)
        if refused and self._group is not None:
            refused += self._behind({self._group(rejected.record) for rejected in refused})
        if len(back) < len(batch):
            self._patience.went_on()
            self._widen(shard, is_success=bool(refused))
        if fates:
            waiting = next(e for e in failed.values() if e.fate is not Fate.RECORD)
            self._patience.wait(f"topic {self._topic}", waiting)
        if Fate.MOVED in fates:
            self._deal([])
        return refused

    def _behind(self, groups: set[object]) -> list[RefusedRecord]:
        """Take what waits behind refused records out of all queues.

        Nothing of it is written: a request that holds a record which is refused either holds none
        whose order counts, or is refused as a whole until that record goes alone.
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
                self._held -= size
                later_records += blocked.values()
        return [
            RefusedRecord(record, None)
            for _, record in sorted(later_records, key=lambda entry: entry[0])
        ]

    def _back(self, shard: str, batch: list[tuple[int, Record]]) -> None:
        self._queues[shard].extendleft(reversed(batch))
        size = sum(record.size for _, record in batch)
        self._sizes[shard] += size
        self._held += size

    def _widen(self, shard: str, *, is_success: bool) -> None:
        """Let requests grow again after a search for a bad record."""
        limit = self._most.pop(shard, None)
        if limit is not None and not is_success and 2 * limit < self._limits.records:
            self._most[shard] = 2 * limit

    def _deal(self, records: list[tuple[int, Record]]) -> None:
        """Ask for the shards, and deal all that waits to them anew, in the order of its coming."""
        waiting = [entry for queue in self._queues.values() for entry in queue] + records
        waiting.sort(key=lambda entry: entry[0])
        is_fresh = self._patience.is_fresh
        while True:
            shards = self._patience.call(
                f"topic {self._topic}", lambda: self._service.shards(self._topic)
            )
            self._shards = Shards(shards)
            dealt = [(self._shards.of(entry[1].place), entry) for entry in waiting]
            if self._shards.active and all(shard is not None for shard, _ in dealt):
                break
            if self._shards.is_settled:
                msg = (
                    f"the active shards of topic {self._topic} do not cover all hash keys, as in "
                    "the expansion mode: write to a topic that was created without it"
                )
                raise WriteError(msg)
            opening = ServiceError("InvalidShardOperation")
            self._patience.wait(f"topic {self._topic}", opening)
        if is_fresh:
            self._patience.went_on()
        self._queues, self._sizes, self._most, self._held = {}, {}, {}, 0
        for shard, entry in dealt:
            if shard is not None:
                self._append(shard, entry)
