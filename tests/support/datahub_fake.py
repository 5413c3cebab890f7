"""DataHub in memory, with faults that a test chooses: a project to write, and a topic to read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from changelane.datahub.service import RANGE, Content, ReadRecord, ServiceError, Shard, Topic
from changelane.datahub.shard_writer import Patience

READ = "orders"
"""The topic that :class:`FakeTopic` has."""


def even_shards(count: int) -> list[Shard]:
    """Return shards with equal ranges of hash keys, as the service creates them."""
    ends = [RANGE * number // count for number in range(1, count)] + [RANGE - 1]
    begins = [0, *ends[:-1]]
    return [
        Shard(str(n), b, e, "ACTIVE") for n, (b, e) in enumerate(zip(begins, ends, strict=True))
    ]


class Time:
    """A clock that only :meth:`sleep` advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def patience(self, retry_s: float = 300.0) -> Patience:
        return Patience(retry_s, clock=lambda: self.now, sleep=self.sleep, chance=lambda: 1.0)


class FakeService:
    """The service, in memory.

    Args:
        shards: The shards of each topic.
        faults: The fault of each ``put``, in turn; no fault after the last one.
        bad: Whether it rejects a record.
        writes_all_or_none: As in the interface.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        faults: Iterable[str] = (),
        bad: Callable[[Content], bool] = lambda _: False,
        writes_all_or_none: bool = True,
    ) -> None:
        self.writes_all_or_none = writes_all_or_none
        self.topics: dict[str, Topic] = {}
        self.current_shards = list(shards)
        self.written: list[tuple[str, str, Content]] = []
        self.puts: list[tuple[str, int]] = []
        self.created: list[tuple[str, int, int]] = []
        self._faults: Iterator[str] = iter(faults)
        self._bad = bad

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def create(self, name: str, topic: Topic, *, shards: int, days: int) -> None:
        self.created.append((name, shards, days))
        self.topics.setdefault(name, topic)

    def shards(self, topic: str) -> Sequence[Shard]:
        del topic
        # an opening shard is active in the next answer
        shards = list(self.current_shards)
        self.current_shards = [
            s._replace(state={"OPENING": "ACTIVE", "CLOSING": "CLOSED"}.get(s.state, s.state))
            for s in shards
        ]
        return shards

    def put(self, topic: str, shard: str, records: Sequence[Content]) -> Mapping[int, ServiceError]:
        self.puts.append((shard, len(records)))
        fault = next(self._faults, "")
        if fault == "split":
            self._split(shard)
        state = next(s.state for s in self.current_shards if s.id == shard)
        if state != "ACTIVE":
            raise ServiceError("InvalidShardOperation", 400)
        if fault == "limit":
            raise ServiceError("LimitExceeded", 400)
        if fault == "down":
            raise ServiceError("Unreachable")
        if fault == "denied":
            raise ServiceError("NoPermission", 403)
        bad = {n for n, one in enumerate(records) if self._bad(one)}
        if self.writes_all_or_none and bad:
            raise ServiceError("MalformedRecord", 400)
        failed = {n: ServiceError("MalformedRecord") for n in bad}
        if fault.startswith("part") and not self.writes_all_or_none:
            step = int(fault[4:])
            failed |= {
                n: ServiceError("LimitExceeded")
                for n in range(len(records))
                if n % step == 0 and n not in bad
            }
        self.written += [(topic, shard, r) for n, r in enumerate(records) if n not in failed]
        if fault == "lost":
            raise ServiceError("Unreachable")
        return failed

    def _split(self, shard: str) -> None:
        old = next(s for s in self.current_shards if s.id == shard)
        middle = (old.begin + old.end) // 2
        number = len(self.current_shards)
        self.current_shards[self.current_shards.index(old)] = old._replace(state="CLOSED")
        self.current_shards += [
            Shard(str(number), old.begin, middle, "OPENING"),
            Shard(str(number + 1), middle, old.end, "OPENING"),
        ]

    def of(self, topic: str) -> list[Any]:
        """Return what was written to a topic, in the order of arrival."""
        return [content for name, _, content in self.written if name == topic]


class FakeTopic:
    """A topic to read, in memory: shards with a state, parents and numbered records.

    Args:
        latest_is_last: ``LATEST`` is the number of the last record, or else of the next one.
        max_read: Records of one answer.
    """

    def __init__(self, *, latest_is_last: bool = True, max_read: int = 1000) -> None:
        self.kind = Topic("BLOB")
        self.state: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.records: dict[str, dict[int, ReadRecord]] = {}
        self.latest_is_last = latest_is_last
        self.max_read = max_read
        self.read_errors: list[ServiceError] = []

    def shard(self, name: str, *values: str, state: str = "ACTIVE", parents: str = "") -> None:
        self.state[name] = state, tuple(parents)
        records = self.records.setdefault(name, {})
        for value in values:
            records[len(records)] = ReadRecord(len(records), value.encode())

    def expire(self, name: str, before: int) -> None:
        self.records[name] = {n: one for n, one in self.records[name].items() if n >= before}

    def topic(self, name: str) -> Topic | None:
        return self.kind if name == READ else None

    def shards(self, topic: str) -> Sequence[Shard]:
        assert topic == READ
        return [Shard(n, 0, 1, state, parents) for n, (state, parents) in self.state.items()]

    def end_sequence(self, topic: str, shard: str, which: str) -> int:
        assert topic == READ
        records = self.records[shard]
        if which == "OLDEST":
            return min(records, default=-1)
        return max(records, default=-1) + (0 if self.latest_is_last else 1)

    def read(self, topic: str, shard: str, sequence: int, limit: int) -> Sequence[ReadRecord]:
        assert topic == READ
        if self.read_errors:
            raise self.read_errors.pop()
        records = self.records[shard]
        if not min(records, default=0) <= sequence <= max(records, default=-1) + 1:
            raise ServiceError("SeekOutOfRange", 400)
        return [one for n, one in records.items() if n >= sequence][: min(limit, self.max_read)]
