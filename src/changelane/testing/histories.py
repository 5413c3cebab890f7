# SPDX-License-Identifier: Apache-2.0
"""Generated histories of a table: the events of a simulated source, and its rows at the end.

A small database is simulated: keys are enforced (at each statement, or deferred to the commit),
rows move from key to key, some rows existed before the stream began, some updates lack columns. The
rows at the end come from the simulation, independently of the tested rule. The source of randomness
for :func:`history` is a seeded ``random.Random``, or Hypothesis' ``st.randoms()``::

    @given(st.randoms(use_true_random=False))
    def test_my_table(chance):
        generated = history(chance, Profile(moves="whole"))
        table.apply(generated.events)
        assert rows_of(table) == generated.rows
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
    """The possible contents of a history.

    Attributes:
        size: The approximate number of changes.
        keys: The number of keys.
        source: The kind of positions.
        moves: Key changes: none, with all columns, or with missing columns.
        deferred: Two rows may have one key inside a transaction: rows swap and shift.
        transactions: Several changes have one transaction; otherwise each has its own.
        truncates: The table may be truncated.
        ties: Some changes have two events at one position, with different values.
        silent: Some rows existed before the stream, and no snapshot contains them.
        partial: Updates may lack columns, and inserts too (large objects that are not sent).
        before: The content of before images.
        halves: A key change may be written as two messages.
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
    """A generated history.

    Attributes:
        events: The events in the order of the log.
        rows: The rows at the end by canonical key, as far as the events contain them; a column that
            no event contains is NULL.
        unknown: The columns that no event contains, by canonical key.
        tie_count: The number of positions with two values.
        cuts: The indexes between transactions, at which *events* may be split into batches.
    """

    events: tuple[ChangeEvent, ...]
    rows: Mapping[bytes, Mapping[str, Value]]
    unknown: Mapping[bytes, frozenset[str]]
    tie_count: int
    cuts: tuple[int, ...]


class _Row:
    """A row of the simulated database, and its columns that the events contained."""

    __slots__ = ("known_columns", "values")

    def __init__(self, values: dict[str, Value], described: set[str]) -> None:
        self.values = values
        self.known_columns = described


def history(chance: Random, profile: Profile = Profile()) -> History:  # noqa: B008 - frozen
    """Simulate a database, and return its events and rows."""
    play = _Simulation(chance, profile)
    play.begin()
    while len(play.events) < profile.size:
        play.transact()
    return play.end()


class _Simulation:
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
            # the file number gets another digit
            return MySqlPosition(f"binlog.{999_999 + (self.at > 1010)}", self.at, row)
        if self.profile.source == "oracle":
            return ScnPosition(self.at, self.commit + 1, ssn=row)
        return PostgresPosition(self.at, self.commit or None, row)

    def _write_event(
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
            # one column is unique, so that rows can be distinguished
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
        """Fill the table, and write a part of it as a snapshot."""
        for key in range(1, self.profile.keys + 1):
            if self.flip():
                continue
            values = self._values(key)
            if self.profile.silent and self.flip(3):
                self.rows[key] = _Row(values, set())
            else:
                self.rows[key] = _Row(values, set(COLUMNS))
                self.events.append(self._write_event(Op.READ, None, dict(values), snapshot="true"))
        self.cuts.append(len(self.events))

    # Transactions

    def transact(self) -> None:
        """Simulate one transaction of one or more statements."""
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
        events = [self._write_event(Op.CREATE, None, after)]
        if self.profile.ties and self.flip(4):
            events, values = self._tied(events[0], values)
        self.rows[key] = _Row(values, {c for c in COLUMNS if after[c] is not UNAVAILABLE})
        self.events += events

    def _tied(
        self, event: DataChange, values: dict[str, Value]
    ) -> tuple[list[DataChange], dict[str, Value]]:
        """Write an event a second time at its position, with another value."""
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
        self.events.append(self._write_event(Op.DELETE, self._before(row), None))

    def _replace(self, key: int) -> None:
        """Delete and insert at one position, as producers write a split update."""
        row = self.rows[key]
        values = self._values(key)
        self.events.append(self._write_event(Op.DELETE, self._before(row), None))
        self.events.append(self._write_event(Op.CREATE, None, dict(values)))
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
                row.known_columns.add(name)
        row.known_columns.update(KEY)
        return after

    def _update(self, key: int) -> None:
        row = self.rows[key]
        before = self._before(row) if self.profile.before == "full" else None
        after = self._changed(row, lacking=self.profile.partial and not self.flip(3))
        event = self._write_event(Op.UPDATE, before, after)
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
        self._write_move(row, new)
        self.rows[new] = row

    def _write_move(self, row: _Row, new: int) -> None:
        before = self._before(row)
        old = {name: row.values[name] for name in KEY}
        if self.profile.before == "full":
            row.known_columns.update(COLUMNS)
        row.values["id"] = new
        lacking = self.profile.moves == "lacking" and not self.flip(3)
        after = self._changed(row, lacking=lacking)
        if self.profile.halves and self.flip():
            departure = self._write_event(Op.DELETE, before, None)
            arrived = self._write_event(Op.CREATE, None, after)
            self.events.append(HalfUpdate(departure, {"id": new}))
            self.events.append(HalfUpdate(arrived, old))
        else:
            self.events.append(self._write_event(Op.UPDATE, before, after))

    def _permute(self) -> None:
        """Move rows in a cycle, or all by one, so that two rows have one key until the commit."""
        keys = self.chance.sample(sorted(self.rows), min(len(self.rows), 3))
        targets = [*keys[1:], keys[0]]
        free = [k for k in range(1, self.profile.keys + 1) if k not in self.rows]
        if free and self.flip():
            targets = [*keys[1:], self.chance.choice(free)]
        moved = {}
        for old, new in zip(keys, targets, strict=True):
            self.at += 1
            row = self.rows.pop(old)
            self._write_move(row, new)
            moved[new] = row
        self.rows.update(moved)

    # The end

    def end(self) -> History:
        rows: dict[bytes, Mapping[str, Value]] = {}
        unknown: dict[bytes, frozenset[str]] = {}
        for key, row in self.rows.items():
            if not row.known_columns:
                continue
            name = key_bytes({"id": key})
            rows[name] = {c: row.values[c] if c in row.known_columns else None for c in COLUMNS}
            if lacking := frozenset(COLUMNS) - row.known_columns:
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
    """Return batches of the events in order, with repetitions.

    Args:
        chance: The source of randomness for the cuts.
        events: The events in the order of the log.
        cuts: The allowed indexes of the begin and end of batches; the default is any index.
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
