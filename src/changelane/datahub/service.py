# SPDX-License-Identifier: Apache-2.0
"""What is asked of DataHub, as an interface, and what its refusals mean."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Protocol

from changelane.conversion.partition import DeliveryError

Content = bytes | tuple[Any, ...]
"""A record: the bytes of a BLOB, or the values of a TUPLE in the order of its topic's fields."""

RANGE: Final = 1 << 128
"""How many hash keys there are."""


class Shard(NamedTuple):
    """A shard.

    Attributes:
        id: Its name.
        begin: The first hash key of its range.
        end: The one behind its range; the last shard's is the last hash key, which it has, too.
        state: ``ACTIVE`` takes records; ``OPENING`` and ``CLOSING`` will change; ``CLOSED`` was
            split or merged.
        parents: The shards that it was made of.
    """

    id: str
    begin: int
    end: int
    state: str
    parents: tuple[str, ...] = ()


class Taken(NamedTuple):
    """A record that was read.

    Attributes:
        sequence: Its number in its shard, which rises.
        content: The bytes of a BLOB, or the values of a TUPLE as text, NULL being ``None``.
        attributes: What was said of it beside.
    """

    sequence: int
    content: bytes | tuple[str | None, ...]
    attributes: tuple[tuple[str, str], ...] = ()


class Topic(NamedTuple):
    """A topic.

    Attributes:
        kind: What its records are.
        schema: The JSON of a TUPLE topic's fields.
    """

    kind: Literal["TUPLE", "BLOB"]
    schema: str | None = None


class Fate(Enum):
    """What to do after a refusal."""

    WAIT = "try again later"
    MOVED = "ask for the shards, and try again"
    RECORD = "the record is never taken"
    STOP = "nothing helps but a person"


_FATES: Final[dict[str, Fate]] = {
    "LimitExceeded": Fate.WAIT,
    "InternalServerError": Fate.WAIT,
    "Unreachable": Fate.WAIT,
    "InvalidShardOperation": Fate.MOVED,
    "NoSuchShard": Fate.MOVED,
    "MalformedRecord": Fate.RECORD,
    "InvalidParameter": Fate.RECORD,
}
_CODE: Final = re.compile(r"[A-Za-z]{1,64}")
_TOO_LARGE: Final = 413
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class ServiceError(DeliveryError):
    """The service refused something, or did not answer.

    It says the service's error code, and never its message, which may quote what was sent.

    Attributes:
        code: The code, such as ``LimitExceeded``; ``Unreachable`` when nothing answered.
        status: The HTTP status, 0 when there is none.
    """

    def __init__(self, code: str | None, status: int = 0) -> None:
        self.code = code if code and _CODE.fullmatch(code) else "unknown"
        self.status = status
        super().__init__(self.code, status)

    def __str__(self) -> str:
        status = f" (status {self.status})" if self.status > 0 else ""
        return f"DataHub says {self.code}{status}"

    @property
    def fate(self) -> Fate:
        """What to do now."""
        fate = _FATES.get(self.code)
        if fate is not None:
            return fate
        if self.status == _TOO_LARGE:
            return Fate.RECORD
        is_passing = self.status == _TOO_MANY or self.status >= _SERVER_ERROR
        return Fate.WAIT if is_passing else Fate.STOP


class Service(Protocol):
    """A project of DataHub. Each call raises :class:`ServiceError`."""

    @property
    def is_whole(self) -> bool:
        """Whether records are written all or none; else some of them may be refused."""
        ...

    def topic(self, name: str) -> Topic | None:
        """Return a topic; ``None`` when it is not there."""
        ...

    def create(self, name: str, topic: Topic, *, shards: int, days: int) -> None:
        """Create a topic and wait for its shards; one that is there already stays as it is."""
        ...

    def shards(self, topic: str) -> Sequence[Shard]:
        """Return the shards of a topic."""
        ...

    def put(self, topic: str, shard: str, records: Sequence[Content]) -> Mapping[int, ServiceError]:
        """Write records to a shard; return why some were not written, by their numbers."""
        ...


class Readable(Protocol):
    """What is asked of a project to read from it. Each call raises :class:`ServiceError`."""

    def topic(self, name: str) -> Topic | None:
        """Return a topic; ``None`` when it is not there."""
        ...

    def shards(self, topic: str) -> Sequence[Shard]:
        """Return the shards of a topic."""
        ...

    def edge(self, topic: str, shard: str, which: Literal["OLDEST", "LATEST"]) -> int:
        """Return the number at which the service sees an end of a shard."""
        ...

    def read(self, topic: str, shard: str, sequence: int, limit: int) -> Sequence[Taken]:
        """Return records from a number on, in their order; none where none is yet."""
        ...


class Shards:
    """The active shards of a topic, by the hash keys that they have."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        active = sorted((s for s in shards if s.state == "ACTIVE"), key=lambda shard: shard.begin)
        self.active: Final = tuple(active)
        self.is_settled: Final = all(s.state in {"ACTIVE", "CLOSED"} for s in shards)
        """Whether no shard is about to open or close."""
        self._begins = [shard.begin for shard in active]

    def of(self, place: int) -> str | None:
        """Return the shard of a hash key; ``None`` when none is active there."""
        index = bisect_right(self._begins, place) - 1
        if index < 0:
            return None
        shard = self.active[index]
        is_inside = place < shard.end or (shard.end == RANGE - 1 == place)
        return shard.id if is_inside else None
