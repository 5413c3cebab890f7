# SPDX-License-Identifier: Apache-2.0
"""Histories of a table: what a source does, the events that tell it, and the rows at the end.

A small database is played: keys are enforced (at each statement, or deferred to the commit), rows
move from key to key, some rows were there before the stream began, some updates do not tell every
column. The rows at the end are the database's own, so that they owe nothing to the rule that is
tested. Feed :func:`history` a seeded ``random.Random``, or Hypothesis' ``st.randoms()``::

    @given(st.randoms(use_true_random=False))
    def test_my_table(chance):
        told = history(chance, Profile(moves="whole"))
        table.apply(told.events)
        assert rows_of(table) == told.rows
"""

import decimal
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, Literal

import msgspec

from changelane.apply import key_bytes, sort_key
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Key, Op, Source, Transaction
from changelane.event import Truncate as TruncateEvent
from changelane.position import MySqlPosition, Position, PostgresPosition, ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Decimal, Integer, String, Value

TABLE: Final = TableId("shop", "public", "orders")
SCHEMA: Final = TableSchema(
    (
        Column("id", Integer(64), nullable=False),
        Column("state", String()),
        Column("total", Decimal(12, 2)),
        Column("count", Integer(32)),
        Column("note", String()),
    )
)
KEY: Final = ("id",)
COLUMNS: Final = tuple(column.name for column in SCHEMA.columns)


class Profile(msgspec.Struct, frozen=True):
    """What may happen in a history.

    Attributes:
        size: About how many changes.
        keys: How many keys there are to fight for.
        source: Whose positions the events have.
        moves: Changes of keys: none, with every column told, or lacking some.
        deferred: Keys may be held twice inside a transaction: rows swap and shift.
        transactions: Several changes share a transaction; otherwise each has its own.
        truncates: The table may be truncated.
        ties: Some changes are told twice at one position, with different values.
        silent: Some rows were there before the stream, and no snapshot told them.
        partial: Updates may lack columns, and inserts too (large objects that are not sent).
        before: What before images hold.
        halves: A change of a key may be told by two messages.
    """

    size: int = 12
    keys: int = 3
    source: Literal["postgresql", "mysql", "oracle"] = "postgresql"
    moves: Literal["none", "whole", "lacking"] = "whole"
    deferred: bool = False
    transactions: bool = False
    truncates: bool = True
    ties: bool = False
    silent: bool = True
    partial: bool = True
    before: Literal["key", "full"] = "key"
    halves: bool = False


class History(msgspec.Struct, frozen=True):
    """A history.

    Attributes:
        events: In the order of the log.
        rows: The rows at the end by canonical key, as far as the events told them; a column that
            they did not tell is NULL.
        unknown: The columns of such rows, by canonical key.
        tie_count: How often two values were told at one position.
        cuts: Places between transactions, where *events* may be split into batches.
    """

    events: tuple[ChangeEvent, ...]
    rows: Mapping[bytes, Mapping[str, Value]]
    unknown: Mapping[bytes, frozenset[str]]
    tie_count: int
    cuts: tuple[int, ...]


class _Row:
    """A row of the played database, and which of its columns the stream has told."""

    __slots__ = ("told", "values")

    def __init__(self, values: dict[str, Value], described: set[str]) -> None:
        self.values = values
        self.told = described


def history(chance: Random, profile: Profile = Profile()) -> History:  # noqa: B008 - frozen
    """Play a database and return what it told, and what it holds."""
    play = _Play(chance, profile)
    play.begin()
    while len(play.events) < profile.size:
        play.transact()
    return play.end()


class _Play:
    def __init__(self, chance: Random, profile: Profile) -> None:
        self.chance = chance
        self.profile = profile
        self.rows: dict[int, _Row] = {}
        self.events: list[ChangeEvent] = []
        self.cuts: list[int] = []
        self.tie_count = 0
        self.at = 1000
        self.commit = 900
        self.transaction: str | None = None
        self.number = 0

    def flip(self, one_in: int = 2) -> bool:
        return self.chance.randrange(one_in) == 0

    # The log

    def _position(self, row: int = 0) -> Position:
        if self.profile.source == "mysql":
            # The file number gains a digit on the way.
            return MySqlPosition(f"binlog.{999_999 + (self.at > 1010)}", self.at, row)
        if self.profile.source == "oracle":
            return ScnPosition(self.at, self.commit + 1, ssn=row)
        return PostgresPosition(self.at, self.commit or None, row)

    def _tell(
        self,
        op: Op,
        before: Mapping[str, Value] | None,
        after: Mapping[str, Value] | None,
        *,
        snapshot: str | None = None,
        row: int = 0,
    ) -> DataChange:
        return DataChange(
            op,
            TABLE,
            Key(KEY),
            before,
            after,
            SCHEMA,
            self._position(row),
            None if self.transaction is None else Transaction(self.transaction),
            Source(product=self.profile.source, connector="debezium", snapshot=snapshot),
        )

    # Values

    def _values(self, key: int) -> dict[str, Value]:
        return {"id": key, **{name: self._value(name) for name in COLUMNS[1:]}}

    def _value(self, name: str) -> Value:
        pick = self.chance.randrange(4)
        if self.profile.deferred and name == "state":
            # Rows that nothing tells apart cannot be told apart: one column is unique here.
            self.number += 1
            return f"row {self.number}"
        match name:
            case "total":
                return None if pick == 0 else decimal.Decimal(pick * 1000).scaleb(-2)
            case "count":
                return None if pick == 0 else pick - 2
            case _:
                return None if pick == 0 else f"{name} {'abé'[pick - 1]}"

    # Before the stream

    def begin(self) -> None:
        """Fill the table, and tell some of it by a snapshot."""
        for key in range(1, self.profile.keys + 1):
            if self.flip():
                continue
            values = self._values(key)
            if self.profile.silent and self.flip(3):
                self.rows[key] = _Row(values, set())
            else:
                self.rows[key] = _Row(values, set(COLUMNS))
                self.events.append(self._tell(Op.READ, None, dict(values), snapshot="true"))
        self.cuts.append(len(self.events))

    # Transactions

    def transact(self) -> None:
        """Make one transaction of one or more statements."""
        self.at += 1
        self.transaction = f"tx {self.at}"
        profile = self.profile
        statements = self.chance.randrange(1, 4) if profile.transactions else 1
        for _ in range(statements):
            if profile.deferred and len(self.rows) > 1 and self.flip():
                self._permute()
            else:
                self._statement()
        self.commit = self.at
        self.cuts.append(len(self.events))

    def _statement(self) -> None:
        self.at += 1
        key = self.chance.randrange(1, self.profile.keys + 1)
        if self.profile.truncates and self.flip(12):
            self.rows.clear()
            place = None if self.transaction is None else Transaction(self.transaction)
            self.events.append(TruncateEvent(TABLE, None, self._position(), place))
        elif key not in self.rows:
            self._insert(key)
        else:
            free = [k for k in range(1, self.profile.keys + 1) if k not in self.rows]
            choice = self.chance.randrange(8)
            if choice < 2:
                self._delete(key)
            elif choice == 2:
                self._replace(key)
            elif choice < 5 and free and self.profile.moves != "none":
                self._move(key, self.chance.choice(free))
            else:
                self._update(key)

    def _insert(self, key: int) -> None:
        values = self._values(key)
        after = dict(values)
        if self.profile.partial and self.flip(3):
            after["note"] = UNAVAILABLE
        events = [self._tell(Op.CREATE, None, after)]
        if self.profile.ties and self.flip(4):
            events, values = self._tied(events[0], values)
        self.rows[key] = _Row(values, {c for c in COLUMNS if after[c] is not UNAVAILABLE})
        self.events += events

    def _tied(
        self, event: DataChange, values: dict[str, Value]
    ) -> tuple[list[DataChange], dict[str, Value]]:
        """Tell an event a second time at its position, with another value."""
        assert event.after is not None  # noqa: S101 - an insert or an update
        name = self.chance.choice([c for c in COLUMNS[1:] if event.after.get(c) is not UNAVAILABLE])
        new_value = self._value(name)
        if sort_key(new_value) == sort_key(values[name]):
            return [event], values
        self.tie_count += 1
        again = msgspec.structs.replace(event, after={**event.after, name: new_value})
        greater = max((values[name], new_value), key=sort_key)
        return [event, again], {**values, name: greater}

    def _before(self, row: _Row) -> dict[str, Value]:
        if self.profile.before == "full":
            return dict(row.values)
        return {name: row.values[name] for name in KEY}

    def _delete(self, key: int) -> None:
        row = self.rows.pop(key)
        self.events.append(self._tell(Op.DELETE, self._before(row), None))

    def _replace(self, key: int) -> None:
        """Delete and insert at one position, as producers tell an update that they split."""
        row = self.rows[key]
        values = self._values(key)
        self.events.append(self._tell(Op.DELETE, self._before(row), None))
        self.events.append(self._tell(Op.CREATE, None, dict(values)))
        self.rows[key] = _Row(values, set(COLUMNS))

    def _changed(self, row: _Row, *, lacking: bool) -> dict[str, Value]:
        """Change some columns of a row; return the after image."""
        after: dict[str, Value] = {}
        for name in COLUMNS:
            if name in KEY:
                after[name] = row.values[name]
            elif lacking and self.flip():
                after[name] = UNAVAILABLE
            else:
                if self.flip():
                    row.values[name] = self._value(name)
                after[name] = row.values[name]
                row.told.add(name)
        row.told.update(KEY)
        return after

    def _update(self, key: int) -> None:
        row = self.rows[key]
        before = self._before(row) if self.profile.before == "full" else None
        after = self._changed(row, lacking=self.profile.partial and not self.flip(3))
        event = self._tell(Op.UPDATE, before, after)
        events = [event]
        if (
            self.profile.ties
            and self.flip(3)
            and any(after[name] is not UNAVAILABLE for name in COLUMNS[1:])
        ):
            events, row.values = self._tied(event, row.values)
        self.events += events

    def _move(self, old: int, new: int) -> None:
        row = self.rows.pop(old)
        self._tell_move(row, new)
        self.rows[new] = row

    def _tell_move(self, row: _Row, new: int) -> None:
        before = self._before(row)
        old = {name: row.values[name] for name in KEY}
        if self.profile.before == "full":
            row.told.update(COLUMNS)
        row.values["id"] = new
        lacking = self.profile.moves == "lacking" and not self.flip(3)
        after = self._changed(row, lacking=lacking)
        if self.profile.halves and self.flip():
            departure = self._tell(Op.DELETE, before, None)
            arrived = self._tell(Op.CREATE, None, after)
            self.events.append(HalfUpdate(departure, {"id": new}))
            self.events.append(HalfUpdate(arrived, old))
        else:
            self.events.append(self._tell(Op.UPDATE, before, after))

    def _permute(self) -> None:
        """Move rows in a cycle, or all by one, so that keys are held twice until the commit."""
        keys = self.chance.sample(sorted(self.rows), min(len(self.rows), 3))
        targets = [*keys[1:], keys[0]]
        free = [k for k in range(1, self.profile.keys + 1) if k not in self.rows]
        if free and self.flip():
            targets = [*keys[1:], self.chance.choice(free)]
        moved = {}
        for old, new in zip(keys, targets, strict=True):
            self.at += 1
            row = self.rows.pop(old)
            self._tell_move(row, new)
            moved[new] = row
        self.rows.update(moved)

    # The end

    def end(self) -> History:
        rows: dict[bytes, Mapping[str, Value]] = {}
        unknown: dict[bytes, frozenset[str]] = {}
        for key, row in self.rows.items():
            if not row.told:
                continue
            name = key_bytes({"id": key})
            rows[name] = {c: row.values[c] if c in row.told else None for c in COLUMNS}
            if lacking := frozenset(COLUMNS) - row.told:
                unknown[name] = lacking
        return History(tuple(self.events), rows, unknown, self.tie_count, tuple(self.cuts))


# Deliveries of a history


def shuffled(chance: Random, events: Sequence[ChangeEvent]) -> list[list[ChangeEvent]]:
    """Return batches of the events in any order, some of them twice."""
    arrival = list(events)
    arrival += [event for event in events if chance.randrange(4) == 0]
    chance.shuffle(arrival)
    return _split(chance, arrival)


def rewound(
    chance: Random, events: Sequence[ChangeEvent], cuts: Sequence[int] | None = None
) -> list[list[ChangeEvent]]:
    """Return batches of the events in order, going back now and then.

    Args:
        chance: Where the cuts are.
        events: In the order of the log.
        cuts: The only places where a batch may begin or end; without, anywhere.
    """
    places = sorted({0, len(events), *(range(len(events)) if cuts is None else cuts)})
    batches: list[list[ChangeEvent]] = []
    at, patience = 0, 6
    while places[at] < len(events):
        to = chance.randrange(at + 1, min(len(places), at + 5))
        batches.append(list(events[places[at] : places[to]]))
        at = to
        if patience and chance.randrange(3) == 0:
            patience -= 1
            at = chance.randrange(at + 1)
    return batches


def _split(chance: Random, events: Sequence[ChangeEvent]) -> list[list[ChangeEvent]]:
    batches: list[list[ChangeEvent]] = [[]]
    for event in events:
        if batches[-1] and chance.randrange(3) == 0:
            batches.append([])
        batches[-1].append(event)
    return batches
