# SPDX-License-Identifier: Apache-2.0
"""Joins the two halves of an update that a producer tells in two messages.

Debezium writes a key change as a delete of the old key, its tombstone, and a create of the new key,
in different partitions as a rule (B 1.5). The halves become one update only where they prove to
belong together: same table, same source position, and each names the other's key. Half updates
that find no partner become a plain delete or insert, which mean the same to a table.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from changelane.event import (
    ChangeEvent,
    DataChange,
    HalfUpdate,
    Image,
    Op,
    Tombstone,
    key_of,
)

MOST_WAITING: Final = 10_000
"""Events that a half waits for its partner, unless told otherwise."""

_Values = tuple[tuple[str, str], ...]
_Move = tuple[_Values, _Values]
_Token = tuple[object, object, _Move]


class _Waiting(msgspec.Struct):
    change: DataChange
    since: int
    tombstones: list[Tombstone] = []


class JoinHalves:
    """Makes one update of two halves, and swallows the tombstone between them.

    Args:
        most_waiting: How many events a half is held back for at most.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._seen = 0
        self._waiting: OrderedDict[_Token, _Waiting] = OrderedDict()
        self._departed: dict[_Move, _Token] = {}
        self._joined: OrderedDict[_Move, int] = OrderedDict()

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Take an event and return those that may go on."""
        self._seen += 1
        released = self._expired() if self._waiting or self._joined else ()
        if isinstance(event, HalfUpdate):
            return (*released, *self._half(event))
        if isinstance(event, Tombstone) and event.moved_to is not None:
            return (*released, *self._tombstone(event))
        return (*released, event)

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Release the halves that found no partner."""
        released = tuple(event for waiting in self._waiting.values() for event in _alone(waiting))
        self._waiting.clear()
        self._departed.clear()
        self._joined.clear()
        return released

    def _half(self, half: HalfUpdate) -> tuple[ChangeEvent, ...]:
        change = half.change
        token = _token(half)
        if token is None:
            return (change,)
        other = self._waiting.get(token)
        if other is not None and other.change.op is not change.op:
            del self._waiting[token]
            move = token[2]
            self._departed.pop(move, None)
            if not other.tombstones:
                self._joined[move] = self._seen
            pair = (change, other.change) if change.op is Op.DELETE else (other.change, change)
            return (_update(*pair),)
        released = () if other is None else _alone(other)
        self._waiting[token] = _Waiting(change, self._seen)
        self._waiting.move_to_end(token)
        if change.op is Op.DELETE:
            self._departed[token[2]] = token
        return released

    def _tombstone(self, event: Tombstone) -> tuple[ChangeEvent, ...]:
        move = _frozen(event.key), _frozen(event.moved_to)
        token = self._departed.get(move)
        if token is not None:
            self._waiting[token].tombstones.append(event)
            return ()
        if self._joined.pop(move, None) is not None:
            return ()
        return (event,)

    def _expired(self) -> tuple[ChangeEvent, ...]:
        horizon = self._seen - self._most_waiting
        released: list[ChangeEvent] = []
        while self._waiting:
            token, waiting = next(iter(self._waiting.items()))
            if waiting.since > horizon:
                break
            del self._waiting[token]
            self._departed.pop(token[2], None)
            released.extend(_alone(waiting))
        while self._joined and next(iter(self._joined.values())) <= horizon:
            self._joined.popitem(last=False)
        return tuple(released)


def _alone(waiting: _Waiting) -> tuple[ChangeEvent, ...]:
    return (waiting.change, *waiting.tombstones)


def _frozen(image: Image | None) -> _Values:
    return tuple(sorted((name, repr(value)) for name, value in (image or {}).items()))


def _token(half: HalfUpdate) -> _Token | None:
    """Return what both halves of one update have in common; ``None`` when it cannot be told."""
    change, other = half.change, half.other_key
    image = change.before if change.op is Op.DELETE else change.after
    own = None if image is None else key_of(change, image)
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
