# SPDX-License-Identifier: Apache-2.0
"""The interface of DataHub's service, and the reactions to its errors."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Protocol

from changelane.conversion.partition import DeliveryError

Content = bytes | tuple[Any, ...]
"""A record: the bytes of a BLOB, or the values of a TUPLE in the order of its topic's fields."""

RANGE: Final = 1 << 128
"""The number of hash keys."""


class Shard(NamedTuple):
    """A shard.

    Attributes:
        id: The id of the shard.
        begin: The first hash key of its range.
        end: The end of its range (exclusive); for the last shard the last hash key (inclusive).
        state: ``ACTIVE`` accepts records; ``OPENING`` and ``CLOSING`` are transient; ``CLOSED`` was
            split or merged.
        parents: The shards from whose split or merge it results.
    """

    id: str
    begin: int
    end: int
    state: str
    parents: tuple[str, ...] = ()


class ReadRecord(NamedTuple):
    """A record from a topic.

    Attributes:
        sequence: Its number in its shard, in ascending order.
        content: The bytes of a BLOB, or the values of a TUPLE as text; NULL is ``None``.
        attributes: Its attributes.
    """

    sequence: int
    content: bytes | tuple[str | None, ...]
    attributes: tuple[tuple[str, str], ...] = ()


class Topic(NamedTuple):
    """A topic.

    Attributes:
        kind: The kind of its records.
        schema: The fields of a TUPLE topic, as JSON.
    """

    kind: Literal["TUPLE", "BLOB"]
    schema: str | None = None


class Reaction(Enum):
    """The reaction to an error of the service."""

    RETRY = "retry later"
    REASSIGN = "list the shards again, then retry"
    REJECT = "reject the record"
    FAIL = "fail the run"


_REACTIONS: Final[dict[str, Reaction]] = {
    "LimitExceeded": Reaction.RETRY,
    "InternalServerError": Reaction.RETRY,
    "Unreachable": Reaction.RETRY,
    "InvalidShardOperation": Reaction.REASSIGN,
    "NoSuchShard": Reaction.REASSIGN,
    "MalformedRecord": Reaction.REJECT,
    "InvalidParameter": Reaction.REJECT,
}
_CODE: Final = re.compile(r"[A-Za-z]{1,64}")
_TOO_LARGE: Final = 413
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class ServiceError(DeliveryError):
    """The service rejected a request, or did not answer.

    The text contains the error code of the service, never its message, which may quote a record.

    Attributes:
        code: The error code, such as ``LimitExceeded``; ``Unreachable`` without an answer.
        status: The HTTP status; 0 if there is none.
    """

    def __init__(self, code: str | None, status: int = 0) -> None:
        self.code = code if code and _CODE.fullmatch(code) else "unknown"
        self.status = status
        super().__init__(self.code, status)

    def __str__(self) -> str:
        status = f" (status {self.status})" if self.status > 0 else ""
        return f"DataHub answers {self.code}{status}"

    @property
    def reaction(self) -> Reaction:
        """The reaction to the error."""
        reaction = _REACTIONS.get(self.code)
        if reaction is not None:
            return reaction
        if self.status == _TOO_LARGE:
            return Reaction.REJECT
        is_temporary = self.status == _TOO_MANY or self.status >= _SERVER_ERROR
        return Reaction.RETRY if is_temporary else Reaction.FAIL


class Service(Protocol):
    """A project of DataHub. Each call raises :class:`ServiceError`."""

    @property
    def writes_all_or_none(self) -> bool:
        """Whether a request writes all or none of its records; else it may write a part of them."""
        ...

    def topic(self, name: str) -> Topic | None:
        """Return a topic; ``None`` if it does not exist."""
        ...

    def create(self, name: str, topic: Topic, *, shards: int, days: int) -> None:
        """Create a topic and wait for its shards; an existing topic stays unchanged."""
        ...

    def shards(self, topic: str) -> Sequence[Shard]:
        """Return the shards of a topic."""
        ...

    def put(self, topic: str, shard: str, records: Sequence[Content]) -> Mapping[int, ServiceError]:
        """Write records to a shard; return index -> error of the records that were not written."""
        ...


class Readable(Protocol):
    """A project to read from. Each call raises :class:`ServiceError`."""

    def topic(self, name: str) -> Topic | None:
        """Return a topic; ``None`` if it does not exist."""
        ...

    def shards(self, topic: str) -> Sequence[Shard]:
        """Return the shards of a topic."""
        ...

    def end_sequence(self, topic: str, shard: str, which: Literal["OLDEST", "LATEST"]) -> int:
        """Return the sequence of the oldest or latest end of a shard."""
        ...

    def read(self, topic: str, shard: str, sequence: int, limit: int) -> Sequence[ReadRecord]:
        """Return records from a sequence on, in order; empty if there are none yet."""
        ...


class Shards:
    """The active shards of a topic, by their hash keys."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        active = sorted((s for s in shards if s.state == "ACTIVE"), key=lambda shard: shard.begin)
        self.active: Final = tuple(active)
        self.is_settled: Final = all(s.state in {"ACTIVE", "CLOSED"} for s in shards)
        """Whether no shard is in a transient state."""
        self._begins = [shard.begin for shard in active]

    def of(self, hash_key: int) -> str | None:
        """Return the active shard of a hash key; ``None`` if there is none."""
        index = bisect_right(self._begins, hash_key) - 1
        if index < 0:
            return None
        shard = self.active[index]
        is_inside = hash_key < shard.end or (shard.end == RANGE - 1 == hash_key)
        return shard.id if is_inside else None
