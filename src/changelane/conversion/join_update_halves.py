# SPDX-License-Identifier: Apache-2.0
"""Joins the two halves of an update that a producer tells in two messages.

The halves become one update only where they prove to belong together, in one of two ways:

- Debezium writes a key change as a delete of the old key, its tombstone, and a create of the new
  key, in different partitions as a rule (B 1.5): same table, same source position, and each names
  the other's key. Such halves without a partner become a plain delete or insert, which mean the
  same to a table.
- DataHub writes every update as the row before and the row after, under one sequence id (seed 003:
  "The UPDATE_BEFOR and UPDATE_AFTER operations for the same update share a sequence ID"): same
  table and same pair, whatever their keys. Such a half without a partner is an *orphan*: the row
  before alone does not say that the row went.

Halves that tell neither (SharePlex without transaction or row id, A 3.2: "UPDATE BEFORE/AFTER pairs
join on (trans, seq) or adjacency") are one update where the row after is the very next event of the
stream, and orphans otherwise.
"""

from collections import ChainMap, OrderedDict
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeGuard

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
_Token = tuple[TableId, object, _Move | None]
"""What both halves of one update have in common; no move where a pair joins them."""
_Shape = frozenset[tuple[str, type]]


class Orphans(StrEnum):
    """What becomes of a half that a pair names and that finds no partner.

    ``half``: it stays a half, for the caller to put aside. ``change``: it becomes the delete or the
    insert that its producer wrote, though the row of a delete may still be there.
    """

    HALF = "half"
    CHANGE = "change"


class _Waiting(msgspec.Struct):
    half: HalfUpdate
    own: _Values | None
    since: int
    tombstones: list[Tombstone] = []


class _Table(msgspec.Struct):
    """The waiting halves of one table; no two of them have the same key.

    Attributes:
        count: How many there are.
        unnamed: Those whose own key is not known. Their pair alone says where they belong.
        named: Which half has a key as its own. The other key is its partner's to wait for: events
            of that key may pass, for the update takes the partner's place among them.
        shapes: Columns and Python types of these keys; other shapes cannot be compared with them.
    """

    count: int = 0
    unnamed: set[_Token] = set()
    named: dict[_Values, _Token] = {}
    shapes: set[_Shape] = set()


class JoinState(msgspec.Struct):
    """All that a join remembers between two events of its stream; it pickles.

    Hand it to another :class:`JoinHalves` to go on where one stopped.

    Attributes:
        seen: Events so far.
        waiting: Halves that wait for their partners, the oldest first.
        tables: The same by table.
        departed: Those that wait for a tombstone as well, by the change of their key.
        adjacent: A row before that only the next event can complete.
        joined: Joined changes of a key whose tombstone may still come.
        parted: Halves that went on alone, whose partners may still come.
    """

    seen: int = 0
    waiting: OrderedDict[_Token, _Waiting] = msgspec.field(default_factory=OrderedDict)
    tables: dict[TableId, _Table] = {}
    departed: dict[_Move, _Token] = {}
    adjacent: HalfUpdate | None = None
    joined: OrderedDict[_Move, int] = msgspec.field(default_factory=OrderedDict)
    parted: OrderedDict[_Token, tuple[Op, int]] = msgspec.field(default_factory=OrderedDict)


class JoinHalves:
    """Makes one update of two halves, and swallows the tombstone between them.

    The events of a key stay in their order: a later event that names the key of a waiting half, or
    may name it, ends the wait. A pair also joins halves that name no key; those are overtaken by
    other rows of their table, and end their wait at its truncate or DDL.

    Args:
        most_waiting: How many events a half is held back for at most.
        orphans: What becomes of a half that a pair names and that finds no partner.
        state: The state to go on from; it is changed in place, and :attr:`state` hands it out.
    """

    def __init__(
        self,
        most_waiting: int = MOST_WAITING,
        *,
        orphans: Orphans | str = Orphans.CHANGE,
        state: JoinState | None = None,
    ) -> None:
        self._most_waiting = most_waiting
        self._orphans = Orphans(orphans)
        self.state = JoinState() if state is None else state

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Take an event and return those that may go on."""
        state = self.state
        state.seen += 1
        released = self._expired() if state.waiting or state.joined or state.parted else ()
        if state.adjacent is not None:
            half, state.adjacent = state.adjacent, None
            if _completes(event, half):
                return (*released, _update(half.change, event.change))
            released += self._alone(_Waiting(half, None, 0))
        if isinstance(event, HalfUpdate):
            return (*released, *self._half(event))
        if isinstance(event, Tombstone) and event.moved_to is not None and self._is_ours(event):
            return released
        if state.waiting:
            released += self._release(self._overtaken(event))
        return (*released, event)

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Release the halves that found no partner."""
        waiting = self.state.waiting.values()
        released = tuple(event for one in waiting for event in self._alone(one))
        if self.state.adjacent is not None:
            released += self._alone(_Waiting(self.state.adjacent, None, 0))
        self.state = JoinState()
        return released

    def _half(self, half: HalfUpdate) -> tuple[ChangeEvent, ...]:
        state, change = self.state, half.change
        token = _token(half)
        if token is None:
            released = self._release(self._overtaken(change))
            if _tells_nothing(half) and change.op is Op.DELETE:
                state.adjacent = half
                return released
            return (*released, *self._alone(_Waiting(half, None, 0)))
        own = _own_key(change)
        overtaken = set() if own is None else self._overtaken_in(change.table, (own,))
        other = state.waiting.get(token)
        if other is not None and other.half.change.op is not change.op:
            released = self._release(overtaken - {token})
            self._forget(token)
            if token[2] is not None and not other.tombstones:
                state.joined[token[2]] = state.seen
            halves = (change, other.half.change)
            return (*released, _update(*(halves if change.op is Op.DELETE else halves[::-1])))
        # the same half again takes the place of the first
        released = self._release(overtaken if other is None else overtaken | {token})
        parted = state.parted.get(token)
        if parted is not None and parted[0] is not change.op:
            del state.parted[token]
            return (*released, *self._alone(_Waiting(half, None, 0)))
        self._wait(token, half, own)
        return released

    def _wait(self, token: _Token, half: HalfUpdate, own: Image | None) -> None:
        state, change = self.state, half.change
        named = None if own is None else _frozen(own)
        state.waiting[token] = _Waiting(half, named, state.seen)
        table = state.tables.setdefault(change.table, _Table())
        table.count += 1
        if own is None or named is None:
            table.unnamed.add(token)
        else:
            table.named[named] = token
            table.shapes.add(_shape(own))
        if token[2] is not None and change.op is Op.DELETE:
            state.departed[token[2]] = token

    def _is_ours(self, event: Tombstone) -> bool:
        """Keep the tombstone of a waiting half, or swallow that of a joined one."""
        move = _frozen(event.key), _frozen(event.moved_to)
        token = self.state.departed.get(move)
        if token is not None:
            self.state.waiting[token].tombstones.append(event)
            return True
        return self.state.joined.pop(move, None) is not None

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
        for name, table in self.state.tables.items():
            if _may_be(event.table, name):
                found |= self._overtaken_in(name, images, strict=strict)
                if not isinstance(event, Tombstone):
                    found |= table.unnamed
        return found

    def _overtaken_in(
        self, name: TableId, images: Iterable[Image] | None, *, strict: bool = False
    ) -> set[_Token]:
        table = self.state.tables.get(name)
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
        state = self.state
        released: list[ChangeEvent] = []
        for token in sorted(tokens, key=lambda token: state.waiting[token].since):
            waiting = self._forget(token)
            state.parted[token] = waiting.half.change.op, state.seen
            state.parted.move_to_end(token)
            released.extend(self._alone(waiting))
        return tuple(released)

    def _alone(self, waiting: _Waiting) -> tuple[ChangeEvent, ...]:
        half = waiting.half
        if self._orphans is Orphans.HALF and (half.pair is not None or _tells_nothing(half)):
            return (half,)
        return (half.change, *waiting.tombstones)

    def _forget(self, token: _Token) -> _Waiting:
        state = self.state
        waiting = state.waiting.pop(token)
        if token[2] is not None and state.departed.get(token[2]) == token:
            del state.departed[token[2]]
        table = state.tables[token[0]]
        table.count -= 1
        if not table.count:
            del state.tables[token[0]]
        elif waiting.own is None:
            table.unnamed.discard(token)
        else:
            del table.named[waiting.own]
        return waiting

    def _expired(self) -> tuple[ChangeEvent, ...]:
        state = self.state
        horizon = state.seen - self._most_waiting
        late: set[_Token] = set()
        for token, waiting in state.waiting.items():
            if waiting.since > horizon:
                break
            late.add(token)
        while state.joined and next(iter(state.joined.values())) <= horizon:
            state.joined.popitem(last=False)
        while state.parted and next(iter(state.parted.values()))[1] <= horizon:
            state.parted.popitem(last=False)
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


def _frozen(image: Image | None) -> _Values:
    return tuple(sorted((name, repr(value)) for name, value in (image or {}).items()))


def _tells_nothing(half: HalfUpdate) -> bool:
    """Say whether a half names neither a pair nor the other key."""
    return half.pair is None and half.other_key is None


def _completes(event: ChangeEvent, before: HalfUpdate) -> TypeGuard[HalfUpdate]:
    """Say whether an event is the other half of the row before that came just before it."""
    return (
        isinstance(event, HalfUpdate)
        and _tells_nothing(event)
        and event.change.op is not Op.DELETE
        and event.change.table == before.change.table
        and event.change.position == before.change.position
        and event.change.transaction == before.change.transaction
    )


def _token(half: HalfUpdate) -> _Token | None:
    """Return what both halves of one update have in common; ``None`` when it cannot be told."""
    change, other = half.change, half.other_key
    if half.pair is not None:
        return change.table, half.pair, None
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
