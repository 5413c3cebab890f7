# SPDX-License-Identifier: Apache-2.0
"""Generated dense histories of transactions with key changes, and their deliveries: an oracle.

A table of a few keys is simulated, independently of the tested rule: swaps, cycles, chains, rows
that leave a key and return, deletes and inserts of one key, and updates between them. Keys are
enforced after each statement (immediate) or at the commit (deferred). :func:`judge` applies a
delivery to the tables in memory and compares the rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from changelane.apply import key_bytes
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Key, Op, Source, Transaction
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    Position,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import Integer, String, Value

RowEvent = DataChange | HalfUpdate
"""The events of a history."""
TABLE: Final = TableId("shop", "public", "places")
SCHEMA: Final = TableSchema(
    (Column("id", Integer(64), nullable=False), Column("a", String()), Column("b", String()))
)


class Domain(msgspec.Struct, frozen=True):
    """The kind of positions, and the identity of transactions.

    Attributes:
        position: Returns the position of a change from its number and that of the last commit.
        named: Positions, or ids, always identify the transaction.
        forced: The required identity: a transaction id (``id``), Debezium's ``txId``, or none.
        immediate: Key-only before images occur with immediate constraints only.
        deferrable: The database has deferred constraints.
    """

    position: Callable[[int, int], Position]
    named: bool = True
    forced: str = ""
    immediate: bool = False
    deferrable: bool = True


DOMAINS: Final[Mapping[str, Domain]] = {
    "postgresql": Domain(PostgresPosition, immediate=True),
    "postgresql, first": Domain(
        lambda at, commit: PostgresPosition(at, commit if commit > 900 else None),
        forced="txId",
        immediate=True,
    ),
    "postgresql, txId": Domain(lambda at, _: PostgresPosition(at), forced="txId", immediate=True),
    "mysql": Domain(
        lambda at, _: MySqlPosition("binlog.000001", at // 3, at % 3),
        named=False,
        immediate=True,
        deferrable=False,
    ),
    "scn": Domain(lambda at, commit: ScnPosition(at, commit + 1)),
    "lsn": Domain(lambda at, commit: LsnPosition(f"0:0:{commit:x}", f"0:0:{at:x}")),
    "offset": Domain(lambda at, _: OffsetPosition("t", 0, at), named=False),
    "sequence_by": Domain(lambda at, _: SequencePosition(at), named=False),
}


class Class(msgspec.Struct, frozen=True):
    """The kind of a history and of its delivery.

    Attributes:
        domain: One of :data:`DOMAINS`.
        deferred: Keys are enforced at the commit.
        full: Before images are full; otherwise they contain the key only, and updates have none.
        permuted: Events arrive in any order, some twice; otherwise in order with rewinds.
        ids: Events contain transaction ids.
        single: Each batch contains one event.
        halves: Some key changes are written as two messages.
        by_key: All key changes are written as two messages. The messages of a key arrive in order
            with rewinds, those of different keys in any order, as from one partition per key.
    """

    domain: str
    deferred: bool
    full: bool
    permuted: bool
    ids: bool
    single: bool
    halves: bool
    by_key: bool = False

    @property
    def name(self) -> str:
        """The name of the group in the counts."""
        return ", ".join(
            (
                "by key" if self.by_key else "permuted" if self.permuted else "in order",
                "deferred" if self.deferred else "immediate",
                "full images" if self.full else "key-only images",
            )
        )


class PlayedHistory(msgspec.Struct, frozen=True):
    """A simulated history: its events in the order of the log, and the rows at the end."""

    events: tuple[RowEvent, ...]
    rows: Mapping[bytes, Mapping[str, Value]]


class Verdict(msgspec.Struct, frozen=True):
    """The result of a delivery.

    Attributes:
        is_right: The tables have the source's rows.
        quarantined_count: The number of quarantined events.
    """

    is_right: bool
    quarantined_count: int


def draw(chance: Random, *, permuted: bool | None = None, by_key: bool = False) -> Class:
    """Return a random class among the possible ones.

    Deferred constraints need an identity of the transaction. Key-only images occur with immediate
    constraints in PostgreSQL, because a deferrable key is no replica identity, and in MySQL, which
    checks each row.
    """
    domain = chance.choice(list(DOMAINS))
    domain_options = DOMAINS[domain]
    ids, full = chance.random() < 0.5, chance.random() < 0.6
    can_defer = (
        domain_options.deferrable
        and (domain_options.named or ids)
        and (full or not domain_options.immediate)
    )
    deferred = chance.random() < 0.6 and can_defer
    if permuted is None:
        permuted = chance.random() < 0.5
    single, halves = chance.random() < 0.3, chance.random() < 0.3
    return Class(domain, deferred, full, permuted, ids, single, halves, by_key)


class _Row:
    __slots__ = ("is_known", "values")

    def __init__(self, values: dict[str, Value], *, is_known: bool) -> None:
        self.values = values
        self.is_known = is_known


class _Play:
    def __init__(self, chance: Random, history_class: Class) -> None:
        self.chance = chance
        self.one = history_class
        self.domain = DOMAINS[history_class.domain]
        self.keys = range(1, chance.randrange(3, 7) + 1)
        self.rows: list[_Row] = []
        self.events: list[RowEvent] = []
        self.at, self.commit, self.number, self.transaction = 1000, 900, 0, 0

    def flip(self, one_in: int = 2) -> bool:
        return self.chance.randrange(one_in) == 0

    # Events

    def write_event(
        self,
        op: Op,
        before: Mapping[str, Value] | None,
        after: Mapping[str, Value] | None,
        *,
        snapshot: str | None = None,
    ) -> DataChange:
        within, details = None, {}
        if snapshot is None and self.one.ids:
            within = Transaction(f"tx {self.transaction}")
        elif snapshot is None and self.domain.forced:
            details = {"source": {self.domain.forced: self.transaction}}
        return DataChange(
            op,
            TABLE,
            Key(("id",)),
            None if before is None else dict(before),
            None if after is None else dict(after),
            SCHEMA,
            self.domain.position(self.at, self.commit),
            within,
            Source(snapshot=snapshot),
            details=details,
        )

    def before(self, row: _Row) -> dict[str, Value]:
        return dict(row.values) if self.one.full else {"id": row.values["id"]}

    def values(self, key: int) -> dict[str, Value]:
        self.number += 1
        same = self.flip(4)
        return {"id": key, "a": self.word(), "b": "same" if same else f"row {self.number}"}

    def word(self) -> str:
        return self.chance.choice("wxyz")

    # Actions

    def begin(self) -> None:
        for key in self.keys:
            if self.flip(3):
                continue
            # rows without events need a unique value, because an equal row cannot be distinguished
            # from them; without full images their existence is unknown, too
            may_hide = self.one.full or not self.one.deferred
            row = _Row(self.values(key), is_known=not (may_hide and self.flip(4)))
            if not row.is_known:
                row.values["b"] = f"row {self.number}"
            self.rows.append(row)
            if row.is_known:
                self.at += 1
                if self.flip() or isinstance(self.domain.position(1, 1), SequencePosition):
                    self.transaction += 1
                    self.events.append(self.write_event(Op.CREATE, None, row.values))
                    self.commit = self.at
                else:
                    self.events.append(self.write_event(Op.READ, None, row.values, snapshot="true"))

    def at_key(self, key: Value) -> list[_Row]:
        return [row for row in self.rows if row.values["id"] == key]

    def free(self) -> list[int]:
        return [key for key in self.keys if not self.at_key(key)]

    def insert(self) -> None:
        if not (free := self.free()):
            return
        self.at += 1
        row = _Row(self.values(self.chance.choice(free)), is_known=True)
        self.rows.append(row)
        self.events.append(self.write_event(Op.CREATE, None, row.values))

    def delete(self, row: _Row) -> None:
        self.at += 1
        self.rows.remove(row)
        self.events.append(self.write_event(Op.DELETE, self.before(row), None))

    def update(self, row: _Row) -> None:
        self.at += 1
        before = self.before(row) if self.one.full else None
        row.values["a"] = self.word()
        row.is_known = True
        self.events.append(self.write_event(Op.UPDATE, before, row.values))

    def move(self, row: _Row, key: int) -> None:
        if row.values["id"] == key:
            return
        self.at += 1
        before, old = self.before(row), {"id": row.values["id"]}
        row.values["id"] = key
        row.is_known = True
        if self.flip(4):
            row.values["a"] = self.word()
        if self.one.by_key or (self.one.halves and self.flip()):
            departure = self.write_event(Op.DELETE, before, None)
            arrival = self.write_event(Op.CREATE, None, row.values)
            self.events += [HalfUpdate(departure, {"id": key}), HalfUpdate(arrival, old)]
        else:
            self.events.append(self.write_event(Op.UPDATE, before, row.values))

    def statement(self) -> None:
        choice = self.chance.randrange(16)
        row = self.chance.choice(self.rows) if self.rows else None
        if row is None or choice == 0:
            self.insert()
        elif choice == 1:
            self.delete(row)
        elif choice < 5:
            self.update(row)
        elif choice == 5:
            key = row.values["id"]
            self.delete(row)
            if not self.at_key(key):
                self.at += 1
                again = _Row(self.values(int(str(key))), is_known=True)
                self.rows.append(again)
                self.events.append(self.write_event(Op.CREATE, None, again.values))
        elif self.one.deferred:
            self.move_freely(row, choice)
        elif free := self.free():
            home, key = int(str(row.values["id"])), self.chance.choice(free)
            self.move(row, key)
            if choice > 10:  # leave and return, with an action between
                if self.flip():
                    self.update(row)
                if self.flip(3) and not self.at_key(home) and self.rows:
                    other_row = self.chance.choice(self.rows)
                    if other_row is not row:
                        self.move(other_row, home)
                if not self.at_key(home):
                    self.move(row, home)

    def move_freely(self, row: _Row, choice: int) -> None:
        if choice < 9:
            self.move(row, self.chance.choice(self.keys))
        elif choice < 12:  # leave and return, perhaps over another row
            home = int(str(row.values["id"]))
            self.move(row, self.chance.choice(self.keys))
            if self.flip():
                self.update(row)
            self.move(row, home)
        else:  # a swap, a cycle, or a shift
            rows = self.chance.sample(self.rows, min(len(self.rows), self.chance.randrange(2, 4)))
            keys = [int(str(row.values["id"])) for row in rows]
            free = self.free()
            last = self.chance.choice(free) if free and self.flip(3) else keys[0]
            for moved_row, key in zip(rows, [*keys[1:], last], strict=True):
                self.move(moved_row, key)
                if self.flip(4):
                    self.update(self.chance.choice(rows))

    def transact(self) -> None:
        self.at += 1
        self.transaction += 1
        for _ in range(self.chance.randrange(2, 9)):
            self.statement()
        for key in self.keys:
            while len(rows_at_key := self.at_key(key)) > 1:
                row = self.chance.choice(rows_at_key)
                if (free := self.free()) and not self.flip(3):
                    self.move(row, self.chance.choice(free))
                else:
                    self.delete(row)
        self.commit = self.at


def play(chance: Random, history_class: Class) -> PlayedHistory:
    """Return a history of a class."""
    game = _Play(chance, history_class)
    game.begin()
    for _ in range(chance.randrange(1, 4)):
        game.transact()
    rows = {key_bytes({"id": r.values["id"]}): dict(r.values) for r in game.rows if r.is_known}
    return PlayedHistory(tuple(game.events), rows)


def deliver(
    chance: Random, history_class: Class, events: Sequence[RowEvent]
) -> list[list[ChangeEvent]]:
    """Return batches of the events: in order with rewinds, or in any order, some twice."""
    if history_class.by_key:
        return _cut(chance, history_class, _by_key(chance, events))
    if history_class.permuted:
        arrival = list(events) + [event for event in events if chance.randrange(4) == 0]
        chance.shuffle(arrival)
        return _cut(chance, history_class, arrival)
    batches: list[list[ChangeEvent]] = []
    at, patience = 0, 3
    while at < len(events):
        to = len(events) if chance.randrange(8) == 0 else chance.randrange(at + 1, at + 6)
        to = min(at + 1 if history_class.single else to, len(events))
        batches.append(list(events[at:to]))
        at = to
        if patience and chance.randrange(6) == 0:
            patience -= 1
            at = chance.randrange(at + 1)
    return batches


def _by_key(chance: Random, events: Sequence[RowEvent]) -> Iterator[RowEvent]:
    """Return the events of each key in order, with rewinds."""
    partitions: dict[Value, list[RowEvent]] = {}
    for event in events:
        change = event.change if isinstance(event, HalfUpdate) else event
        partitions.setdefault((change.after or change.before or {})["id"], []).append(event)
    offsets = dict.fromkeys(partitions, 0)
    while open_keys := [key for key, offset in offsets.items() if offset < len(partitions[key])]:
        key = chance.choice(open_keys)
        start = offsets[key]
        offsets[key] = min(start + chance.randrange(1, 5), len(partitions[key]))
        yield from partitions[key][start : offsets[key]]
        if chance.randrange(10) == 0:
            offsets[key] = chance.randrange(offsets[key] + 1)


def _cut(
    chance: Random, history_class: Class, events: Iterable[ChangeEvent]
) -> list[list[ChangeEvent]]:
    batches: list[list[ChangeEvent]] = [[]]
    for event in events:
        if batches[-1] and (history_class.single or chance.randrange(3) == 0):
            batches.append([])
        batches[-1].append(event)
    return batches


def judge(batches: Iterable[Sequence[ChangeEvent]], played: PlayedHistory) -> Verdict:
    """Apply a delivery to the tables in memory, and compare them with the source."""
    tables = MemoryTables()
    for batch in batches:
        tables.apply(batch)
    is_right = tables.keyed(TABLE) == played.rows and not tables.incomplete(TABLE)
    return Verdict(is_right, len(tables.quarantine))
