# SPDX-License-Identifier: Apache-2.0
"""Joins the two halves of an update that a producer tells in two messages.

Debezium writes a key change as a delete of the old key, its tombstone, and a create of the new key,
in different partitions as a rule (B 1.5). The halves become one update only where they prove to
belong together: same table, same source position, and each names the other's key. Half updates
that find no partner become a plain delete or insert, which mean the same to a table.
"""

from collections import ChainMap, OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    HalfUpdate,
    Image,
    Op,
    SchemaChange,
    Tombstone,
    Truncate,
    key_of,
)
from changelane.schema import TableId

MOST_WAITING: Final = 10_000
"""Events that a half waits for its partner, unless told otherwise."""

_Values = tuple[tuple[str, str], ...]
_Move = tuple[_Values, _Values]
_Token = tuple[TableId, object, _Move]
_Shape = frozenset[tuple[str, type]]


class _Waiting(msgspec.Struct):
    change: DataChange
    since: int
    tombstones: list[Tombstone] = []


class _Table(msgspec.Struct):
    """The waiting halves of one table; no two of them have the same key.

    Attributes:
        named: Which half has a key as its own. The other key is its partner's to wait for: events
            of that key may pass, for the update takes the partner's place among them.
        shapes: Columns and Python types of these keys; other shapes cannot be compared with them.
    """

    named: dict[_Values, _Token] = {}
    shapes: set[_Shape] = set()


class JoinHalves:
    """Makes one update of two halves, and swallows the tombstone between them.

    The events of a key stay in their order: a later event that names the key of a waiting half, or
    may name it, ends the wait.

    Args:
        most_waiting: How many events a half is held back for at most.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._seen = 0
        self._waiting: OrderedDict[_Token, _Waiting] = OrderedDict()
        self._tables: dict[TableId, _Table] = {}
        self._departed: dict[_Move, _Token] = {}
        self._joined: OrderedDict[_Move, int] = OrderedDict()
        self._parted: OrderedDict[_Token, tuple[Op, int]] = OrderedDict()

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Take an event and return those that may go on."""
        self._seen += 1
        released = self._expired() if self._waiting or self._joined or self._parted else ()
        if isinstance(event, HalfUpdate):
            return (*released, *self._half(event))
        if isinstance(event, Tombstone) and event.moved_to is not None and self._is_ours(event):
            return released
        if self._waiting:
            released += self._release(self._overtaken(event))
        return (*released, event)

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Release the halves that found no partner."""
        released = tuple(event for waiting in self._waiting.values() for event in _alone(waiting))
        for state in (self._waiting, self._tables, self._departed, self._joined, self._parted):
            state.clear()
        return released

    def _half(self, half: HalfUpdate) -> tuple[ChangeEvent, ...]:
        change = half.change
        token = _token(half)
        if token is None:
            return (*self._release(self._overtaken(change)), change)
        own = _own_key(change) or {}
        overtaken = self._overtaken_in(change.table, (own,))
        other = self._waiting.get(token)
        if other is not None and other.change.op is not change.op:
            released = self._release(overtaken - {token})
            self._forget(token)
            if not other.tombstones:
                self._joined[token[2]] = self._seen
            pair = (change, other.change) if change.op is Op.DELETE else (other.change, change)
            return (*released, _update(*pair))
        released = self._release(overtaken)
        parted = self._parted.get(token)
        if parted is not None and parted[0] is not change.op:
            del self._parted[token]
            return (*released, change)
        self._waiting[token] = _Waiting(change, self._seen)
        table = self._tables.setdefault(change.table, _Table())
        table.named[_frozen(own)] = token
        table.shapes.add(_shape(own))
        if change.op is Op.DELETE:
            self._departed[token[2]] = token
        return released

    def _is_ours(self, event: Tombstone) -> bool:
        """Keep the tombstone of a waiting half, or swallow that of a joined one."""
        move = _frozen(event.key), _frozen(event.moved_to)
        token = self._departed.get(move)
        if token is not None:
            self._waiting[token].tombstones.append(event)
            return True
        return self._joined.pop(move, None) is not None

    def _overtaken(self, event: ChangeEvent) -> set[_Token]:
        """Return the waiting halves that the event must not overtake."""
        images: tuple[Image, ...] | None = None
        strict = False
        match event:
            case DataChange():
                return self._overtaken_in(event.table, _keys_of(event))
            case Tombstone(key=key):
                # most tombstones do not name their table; without a key, too, they say nothing
                strict = event.table == TableId()
                if key is not None:
                    images = (key,)
                elif strict:
                    return set()
            case Truncate() | SchemaChange():
                pass
            case Control() if event.table != TableId():
                pass
            case _:
                return set()
        found: set[_Token] = set()
        for table in self._tables:
            if _may_be(event.table, table):
                found |= self._overtaken_in(table, images, strict=strict)
        return found

    def _overtaken_in(
        self, name: TableId, images: Iterable[Image] | None, *, strict: bool = False
    ) -> set[_Token]:
        table = self._tables.get(name)
        if table is None:
            return set()
        if images is None:
            return set(table.named.values())
        found: set[_Token] = set()
        for image in images:
            if not strict and _shape(image) not in table.shapes:
                return set(table.named.values())
            if (token := table.named.get(_frozen(image))) is not None:
                found.add(token)
        return found

    def _release(self, tokens: set[_Token]) -> tuple[ChangeEvent, ...]:
        """Let halves go on without their partners, in their order."""
        released: list[ChangeEvent] = []
        for token in sorted(tokens, key=lambda token: self._waiting[token].since):
            waiting = self._forget(token)
            self._parted[token] = waiting.change.op, self._seen
            self._parted.move_to_end(token)
            released.extend(_alone(waiting))
        return tuple(released)

    def _forget(self, token: _Token) -> _Waiting:
        waiting = self._waiting.pop(token)
        if self._departed.get(token[2]) == token:
            del self._departed[token[2]]
        table = self._tables[token[0]]
        del table.named[token[2][0 if waiting.change.op is Op.DELETE else 1]]
        if not table.named:
            del self._tables[token[0]]
        return waiting

    def _expired(self) -> tuple[ChangeEvent, ...]:
        horizon = self._seen - self._most_waiting
        late: set[_Token] = set()
        for token, waiting in self._waiting.items():
            if waiting.since > horizon:
                break
            late.add(token)
        while self._joined and next(iter(self._joined.values())) <= horizon:
            self._joined.popitem(last=False)
        while self._parted and next(iter(self._parted.values()))[1] <= horizon:
            self._parted.popitem(last=False)
        return self._release(late) if late else ()


def _may_be(one: TableId, other: TableId) -> bool:
    """Say whether two names can mean one table, where parts that are missing mean any."""
    pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    return all(mine is None or yours is None or mine == yours for mine, yours in pairs)


def _keys_of(change: DataChange) -> tuple[Image, ...] | None:
    """Return the keys that a change names; ``None`` when one is not known."""
    before, after = change.before, change.after
    if change.key is None or (before is None and after is None):
        return None
    found: list[Image] = []
    if after is not None:
        key = key_of(change, after)
        if key is None:
            return None
        found.append(key)
    if before is not None:
        # a key column that a partial image leaves out did not change
        key = key_of(change, ChainMap(before, after or {}))  # type: ignore[arg-type]
        if key is None:
            return None
        found.append(key)
    return tuple(found)


def _own_key(half: DataChange) -> Image | None:
    image = half.before if half.op is Op.DELETE else half.after
    return None if image is None else key_of(half, image)


def _shape(image: Image) -> _Shape:
    return frozenset((name, type(value)) for name, value in image.items())


def _alone(waiting: _Waiting) -> tuple[ChangeEvent, ...]:
    return (waiting.change, *waiting.tombstones)


def _frozen(image: Image | None) -> _Values:
    return tuple(sorted((name, repr(value)) for name, value in (image or {}).items()))


def _token(half: HalfUpdate) -> _Token | None:
    """Return what both halves of one update have in common; ``None`` when it cannot be told."""
    change, other = half.change, half.other_key
    own = _own_key(change)
    if own is None or other is None:
        return None
    # both halves are written with one source block; its time stands in where it has no position
    where = change.position or change.source_time_ns
    if where is None:
        return None
    keys = _frozen(own), _frozen(other)
    return change.table, where, keys if change.op is Op.DELETE else keys[::-1]


def _update(gone: DataChange, come: DataChange) -> DataChange:
    details = {**come.details, **gone.details}
    details.pop("key", None)
    return DataChange(
        Op.UPDATE,
        come.table,
        come.key,
        gone.before,
        come.after,
        come.schema if come.schema is not None else gone.schema,
        come.position,
        gone.transaction,
        come.source,
        gone.source_time_ns,
        gone.process_time_ns,
        gone.before_holds,
        come.after_holds,
        details,
    )
