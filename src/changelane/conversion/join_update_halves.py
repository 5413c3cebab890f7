# SPDX-License-Identifier: Apache-2.0
"""Joins the two halves of an update that a producer writes as two messages.

Two halves become one update only if they provably belong together, in one of two ways:

- Debezium writes a key change as a delete of the old key, its tombstone, and a create of the new
  key, usually in different partitions. Both halves have the same table and source position, and
  each contains the other's key. Such a half without a partner becomes a plain delete or insert,
  which has the same effect on a table.
- DataHub writes every update as a before image and an after image: "The UPDATE_BEFOR and
  UPDATE_AFTER operations for the same update share a sequence ID"
  (https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats). Both halves have the
  same table and the same pair id, whatever their keys. Such a half without a partner is an
  *orphan*: a before image alone does not prove a delete.

Halves without other key and pair id (SharePlex without transaction or row id) are one update if
they are adjacent in the stream, and orphans otherwise. The second half may be an update without a
before image (Flink's changelog): if it has no first half, it is complete without one.
"""

from collections import ChainMap, OrderedDict
from collections.abc import Iterable
from enum import StrEnum
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
    is_complete,
    key_of,
)
from changelane.schema import TableId

MAX_WAITING: Final = 10_000
"""The default of *max_waiting*."""

_KeyValues = tuple[tuple[str, str], ...]
_KeyChange = tuple[_KeyValues, _KeyValues]
_Token = tuple[TableId, object, _KeyChange | None]
"""The identity of an update, equal for both halves; no key change if they have a pair id."""
_KeyShape = frozenset[tuple[str, type]]


class Orphans(StrEnum):
    """The result for a half with a pair id and without a partner.

    ``half``: the half stays a half, which the caller rejects. ``change``: the half becomes a plain
    delete or insert, although the row of a delete may still exist.
    """

    HALF = "half"
    CHANGE = "change"


class _WaitingHalf(msgspec.Struct):
    half: HalfUpdate
    own_key: _KeyValues | None
    since: int
    tombstones: list[Tombstone] = []


class _WaitingTable(msgspec.Struct):
    """The waiting halves of one table; no two of them have the same key.

    Attributes:
        count: The number of halves.
        tokens_without_key: Halves with an unknown own key, which only their pair id can join.
        tokens_by_key: The halves by their own key. Events of the other key may pass, because the
            update takes the place of the second half among them.
        shapes: The columns and Python types of the own keys; other shapes are not comparable.
    """

    count: int = 0
    tokens_without_key: set[_Token] = set()
    tokens_by_key: dict[_KeyValues, _Token] = {}
    shapes: set[_KeyShape] = set()


class JoinState(msgspec.Struct):
    """The picklable state of a join between two events; another :class:`JoinHalves` can continue.

    Attributes:
        event_count: The number of events so far.
        waiting_halves: Halves that wait for their partners, the oldest first.
        tables: The waiting halves by table.
        waiting_deletes: Halves that also wait for a tombstone, by their key change.
        adjacent: A first half that only the next event can complete.
        joined_key_changes: Joined key changes; their tombstones may still arrive.
        released_halves: Halves that were released alone; their partners may still arrive.
    """

    event_count: int = 0
    waiting_halves: OrderedDict[_Token, _WaitingHalf] = msgspec.field(default_factory=OrderedDict)
    tables: dict[TableId, _WaitingTable] = {}
    waiting_deletes: dict[_KeyChange, _Token] = {}
    adjacent: HalfUpdate | None = None
    joined_key_changes: OrderedDict[_KeyChange, int] = msgspec.field(default_factory=OrderedDict)
    released_halves: OrderedDict[_Token, tuple[Op, int]] = msgspec.field(
        default_factory=OrderedDict
    )


class JoinHalves:
    """Joins two halves into one update, and drops the tombstone between them.

    The events of a key stay in their order: a later event that may contain the key of a waiting
    half releases the half. A pair id also joins halves without a key: events of other rows overtake
    them, and a truncate or DDL of their table releases them.

    Attributes:
        half_count: The number of halves and of tombstones of key changes so far.
        first_half: The earlier half that the last event completed: the last released event is the
            update of both. ``None`` if the last event completed none.

    Args:
        max_waiting: The maximum number of events that a half waits.
        orphans: The result for a half with a pair id and without a partner.
        state: The state to continue from; it is changed in place, and :attr:`state` returns it.
    """

    def __init__(
        self,
        max_waiting: int = MAX_WAITING,
        *,
        orphans: Orphans | str = Orphans.CHANGE,
        state: JoinState | None = None,
    ) -> None:
        self._max_waiting = max_waiting
        self._orphans = Orphans(orphans)
        self.state = JoinState() if state is None else state
        self.half_count = 0
        self.first_half: HalfUpdate | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no earlier event has an effect on later ones."""
        state = self.state
        return self.passes_changes and not state.joined_key_changes and not state.released_halves

    @property
    def passes_changes(self) -> bool:
        """Whether a row change that is no half passes: no half waits for an event."""
        return self.state.adjacent is None and not self.state.waiting_halves

    def skip(self, count: int) -> None:
        """Count row changes that pass and are not added."""
        self.state.event_count += count

    def reset(self) -> None:
        """Forget all events."""
        self.state = JoinState()
        self.half_count = 0

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Add an event; return the events that are released."""
        state = self.state
        state.event_count += 1
        self.first_half = None
        released = (
            self._expired()
            if state.waiting_halves or state.joined_key_changes or state.released_halves
            else ()
        )
        if state.adjacent is not None:
            half, state.adjacent = state.adjacent, None
            if (second := _second_half(event, half)) is not None:
                self.first_half = half
                return (*released, _update(half.change, second))
            released += self._without_partner(_WaitingHalf(half, None, 0))
        if isinstance(event, HalfUpdate):
            self.half_count += 1
            return (*released, *self._half(event))
        if isinstance(event, Tombstone) and event.moved_to is not None:
            self.half_count += 1
            if self._take_tombstone(event):
                return released
        if state.waiting_halves:
            released += self._release(self._overtaken(event))
        return (*released, event)

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Release all waiting halves."""
        waiting_halves = self.state.waiting_halves.values()
        released = tuple(event for half in waiting_halves for event in self._without_partner(half))
        if self.state.adjacent is not None:
            released += self._without_partner(_WaitingHalf(self.state.adjacent, None, 0))
        self.state = JoinState()
        return released

    def _half(self, half: HalfUpdate) -> tuple[ChangeEvent, ...]:
        state, change = self.state, half.change
        token = _token(half)
        if token is None:
            released = self._release(self._overtaken(change))
            if _names_no_partner(half) and change.op is Op.DELETE:
                state.adjacent = half
                return released
            return (*released, *self._without_partner(_WaitingHalf(half, None, 0)))
        own = _own_key(change)
        overtaken = set() if own is None else self._overtaken_in(change.table, (own,))
        waiting_half = state.waiting_halves.get(token)
        if waiting_half is not None and waiting_half.half.change.op is not change.op:
            released = self._release(overtaken - {token})
            self._forget(token)
            self.first_half = waiting_half.half
            if token[2] is not None and not waiting_half.tombstones:
                state.joined_key_changes[token[2]] = state.event_count
            halves = (change, waiting_half.half.change)
            return (*released, _update(*(halves if change.op is Op.DELETE else halves[::-1])))
        # a repeated half replaces the first one
        released = self._release(overtaken if waiting_half is None else overtaken | {token})
        released_half = state.released_halves.get(token)
        if released_half is not None and released_half[0] is not change.op:
            del state.released_halves[token]
            return (*released, *self._without_partner(_WaitingHalf(half, None, 0)))
        self._wait(token, half, own)
        return released

    def _wait(self, token: _Token, half: HalfUpdate, own: Image | None) -> None:
        state, change = self.state, half.change
        own_key = None if own is None else _key_values(own)
        state.waiting_halves[token] = _WaitingHalf(half, own_key, state.event_count)
        table = state.tables.setdefault(change.table, _WaitingTable())
        table.count += 1
        if own is None or own_key is None:
            table.tokens_without_key.add(token)
        else:
            table.tokens_by_key[own_key] = token
            table.shapes.add(_key_shape(own))
        if token[2] is not None and change.op is Op.DELETE:
            state.waiting_deletes[token[2]] = token

    def _take_tombstone(self, event: Tombstone) -> bool:
        """Store the tombstone of a waiting half, or drop the tombstone of a joined key change."""
        move = _key_values(event.key), _key_values(event.moved_to)
        token = self.state.waiting_deletes.get(move)
        if token is not None:
            self.state.waiting_halves[token].tombstones.append(event)
            return True
        return self.state.joined_key_changes.pop(move, None) is not None

    def _overtaken(self, event: ChangeEvent) -> set[_Token]:
        """Return the waiting halves that the event must not overtake."""
        images: tuple[Image, ...] | None = None
        strict = False
        match event:
            case DataChange():
                return self._overtaken_in(event.table, _keys_of(event))
            case Tombstone(key=key):
                # most tombstones have no table; a tombstone without key, too, matches no half
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
        tokens: set[_Token] = set()
        for name, table in self.state.tables.items():
            if _may_be_same_table(event.table, name):
                tokens |= self._overtaken_in(name, images, strict=strict)
                if not isinstance(event, Tombstone):
                    tokens |= table.tokens_without_key
        return tokens

    def _overtaken_in(
        self, name: TableId, images: Iterable[Image] | None, *, strict: bool = False
    ) -> set[_Token]:
        table = self.state.tables.get(name)
        if table is None:
            return set()
        if images is None:
            return set(table.tokens_by_key.values())
        tokens: set[_Token] = set()
        for image in images:
            if not strict and _key_shape(image) not in table.shapes:
                return set(table.tokens_by_key.values())
            if (token := table.tokens_by_key.get(_key_values(image))) is not None:
                tokens.add(token)
        return tokens

    def _release(self, tokens: set[_Token]) -> tuple[ChangeEvent, ...]:
        """Release halves without their partners, in their order."""
        state = self.state
        released: list[ChangeEvent] = []
        for token in sorted(tokens, key=lambda token: state.waiting_halves[token].since):
            waiting_half = self._forget(token)
            state.released_halves[token] = waiting_half.half.change.op, state.event_count
            state.released_halves.move_to_end(token)
            released.extend(self._without_partner(waiting_half))
        return tuple(released)

    def _without_partner(self, waiting_half: _WaitingHalf) -> tuple[ChangeEvent, ...]:
        half = waiting_half.half
        if self._orphans is Orphans.HALF and (half.pair is not None or _names_no_partner(half)):
            return (half,)
        return (half.change, *waiting_half.tombstones)

    def _forget(self, token: _Token) -> _WaitingHalf:
        state = self.state
        waiting_half = state.waiting_halves.pop(token)
        if token[2] is not None and state.waiting_deletes.get(token[2]) == token:
            del state.waiting_deletes[token[2]]
        table = state.tables[token[0]]
        table.count -= 1
        if not table.count:
            del state.tables[token[0]]
        elif waiting_half.own_key is None:
            table.tokens_without_key.discard(token)
        else:
            del table.tokens_by_key[waiting_half.own_key]
        return waiting_half

    def _expired(self) -> tuple[ChangeEvent, ...]:
        state = self.state
        oldest_seen = state.event_count - self._max_waiting
        expired: set[_Token] = set()
        for token, waiting_half in state.waiting_halves.items():
            if waiting_half.since > oldest_seen:
                break
            expired.add(token)
        while (
            state.joined_key_changes
            and next(iter(state.joined_key_changes.values())) <= oldest_seen
        ):
            state.joined_key_changes.popitem(last=False)
        while (
            state.released_halves and next(iter(state.released_halves.values()))[1] <= oldest_seen
        ):
            state.released_halves.popitem(last=False)
        return self._release(expired) if expired else ()


def _may_be_same_table(first: TableId, second: TableId) -> bool:
    """Whether two names can denote one table; a missing part matches any."""
    pairs = zip(msgspec.structs.astuple(first), msgspec.structs.astuple(second), strict=True)
    return all(
        own_part is None or other_part is None or own_part == other_part
        for own_part, other_part in pairs
    )


def _keys_of(change: DataChange) -> tuple[Image, ...] | None:
    """Return the keys in a change; ``None`` if one of them is unknown."""
    before, after = change.before, change.after
    if change.key is None or (before is None and after is None):
        return None
    images: list[Image] = []
    if after is not None:
        key = key_of(change, after)
        if key is None:
            return None
        images.append(key)
    if before is not None:
        # a key column that a partial image lacks did not change
        key = key_of(change, ChainMap(before, after or {}))  # type: ignore[arg-type]
        if key is None:
            return None
        images.append(key)
    return tuple(images)


def _own_key(half: DataChange) -> Image | None:
    image = half.before if half.op is Op.DELETE else half.after
    return None if image is None else key_of(half, image)


def _key_shape(image: Image) -> _KeyShape:
    return frozenset((name, type(value)) for name, value in image.items())


def _key_values(image: Image | None) -> _KeyValues:
    return tuple(sorted((name, repr(value)) for name, value in (image or {}).items()))


def _names_no_partner(half: HalfUpdate) -> bool:
    """Whether a half contains neither a pair id nor the other key."""
    return half.pair is None and half.other_key is None


def _second_half(event: ChangeEvent, before: HalfUpdate) -> DataChange | None:
    """Return the second half of the adjacent first half, if an event is or contains it."""
    first = before.change
    match event:
        case HalfUpdate(second) if _names_no_partner(event) and second.op is not Op.DELETE:
            pass
        case DataChange(op=Op.UPDATE, before=None) as second if _are_whole(first, second):
            # Flink's rows are whole; a row with another key is not the other half
            if first.key is not None and _own_key(first) != _own_key(second):
                return None
        case _:
            return None
    is_same = (first.table, first.position, first.transaction) == (
        second.table,
        second.position,
        second.transaction,
    )
    return second if is_same else None


def _are_whole(first: DataChange, second: DataChange) -> bool:
    return (
        first.before is not None
        and second.after is not None
        and is_complete(first.before, first.schema, first.before_holds)
        and is_complete(second.after, second.schema, second.after_holds)
    )


def _token(half: HalfUpdate) -> _Token | None:
    """Return the identity of a half's update; ``None`` if the half does not contain it."""
    change, other_key = half.change, half.other_key
    if half.pair is not None:
        return change.table, half.pair, None
    own = _own_key(change)
    if own is None or other_key is None:
        return None
    # both halves have equal source blocks; without a position, its time identifies the update
    where = change.position or change.source_time_ns
    if where is None:
        return None
    keys = _key_values(own), _key_values(other_key)
    return change.table, where, keys if change.op is Op.DELETE else keys[::-1]


def _update(before_half: DataChange, after_half: DataChange) -> DataChange:
    details = {**after_half.details, **before_half.details}
    details.pop("key", None)
    return DataChange(
        Op.UPDATE,
        after_half.table,
        after_half.key,
        before_half.before,
        after_half.after,
        after_half.schema if after_half.schema is not None else before_half.schema,
        after_half.position,
        before_half.transaction,
        after_half.source,
        before_half.source_time_ns,
        before_half.process_time_ns,
        before_half.before_holds,
        after_half.after_holds,
        details,
    )
