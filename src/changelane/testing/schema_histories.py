# SPDX-License-Identifier: Apache-2.0
"""Generated histories of a database with schema changes, and its rows at the end.

A small database is simulated, statement by statement. Columns are objects, and names are only their
labels, so the rows at the end are independent of the tested rule.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from changelane.event import ChangeEvent, DataChange, Key, Op, SchemaChange, Source
from changelane.position import MySqlPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Integer, Value

SOURCE: Final = Source(product="mysql")
NAMES: Final = ("a", "b", "c", "D")
COMPUTED: Final = "int DEFAULT (1 + 1)"
FILLED: Final[Mapping[str, Value]] = {
    "int": None,
    "int DEFAULT 5": 5,
    "int NOT NULL": 0,
    "int NOT NULL DEFAULT '7'": 7,
    COMPUTED: 2,
}
"""Type of a new column -> its value in existing rows."""
_INT: Final = Integer(32)


class SimulatedTable(msgspec.Struct):
    """A simulated table: its columns (name -> number), and its rows."""

    columns: dict[str, int]
    rows: dict[int, dict[int, Value]] = {}


class Story(msgspec.Struct, frozen=True):
    """The events of a simulated database, and its rows at the end.

    Attributes:
        events: The events in the order of the log.
        tables: Name -> key -> row, by the names at the end.
        computed: Columns (table, name in lower case) with computed values in older rows.
    """

    events: list[ChangeEvent]
    tables: Mapping[TableId, Mapping[int, Mapping[str, Value]]]
    computed: frozenset[tuple[TableId, str]]


class Database:
    """A simulated database that writes events.

    Args:
        chance: The source of randomness.
        name: The database's name.
        names: The possible names of its tables.
    """

    def __init__(
        self, chance: Random, *, name: str = "shop", names: tuple[str, ...] = ("t", "u")
    ) -> None:
        self._name = name
        self._chance = chance
        self._names = names
        self._numbers = itertools.count()
        self._place = itertools.count(100, 10)
        self._computed: set[int] = set()
        self.tables: dict[str, SimulatedTable] = {}
        self.events: list[ChangeEvent] = []
        self._create(names[0])

    def play(self, size: int) -> Story:
        """Simulate a number of actions; return the story."""
        for _ in range(size):
            self._do()
        return self.story()

    def story(self) -> Story:
        """Return the events so far, and the present rows."""
        tables = {}
        computed = set()
        for name, table in self.tables.items():
            names = {number: column for column, number in table.columns.items()}
            tables[self._table(name)] = {
                key: {names[number]: value for number, value in row.items()}
                for key, row in table.rows.items()
            }
            computed |= {
                (self._table(name), names[n].lower()) for n in self._computed if n in names
            }
        return Story(list(self.events), tables, frozenset(computed))

    # -- actions ------------------------------------------------------------------------------

    def _do(self) -> None:
        free = [name for name in self._names if name not in self.tables]
        if not self.tables or (free and self._chance.random() < 0.08):
            self._create(self._chance.choice(free))
            return
        name = self._chance.choice(sorted(self.tables))
        action = self._chance.choices(
            (
                self._change,
                self._alter,
                self._rename_table,
                self._recreate,
                self._truncate,
                self._migrate,
            ),
            (12, 6, 1, 1, 1, 1),
        )[0]
        action(name)

    def _create(self, name: str) -> None:
        columns = ["id", *self._chance.sample(NAMES, 2)]
        self.tables[name] = SimulatedTable({column: next(self._numbers) for column in columns})
        listed = ", ".join(f"`{column}` int" for column in columns[1:])
        self._write_statement(f"CREATE TABLE `{name}` (`id` int PRIMARY KEY, {listed})", name)

    def _recreate(self, name: str) -> None:
        del self.tables[name]
        self._write_statement(f"DROP TABLE `{name}`", name)
        self._create(name)

    def _truncate(self, name: str) -> None:
        self.tables[name].rows.clear()
        self._write_statement(f"TRUNCATE TABLE `{name}`", name)

    def _rename_table(self, name: str) -> None:
        free = [name for name in self._names if name not in self.tables]
        if free:
            new = self._chance.choice(free)
            self.tables[new] = self.tables.pop(name)
            self._write_statement(f"RENAME TABLE `{name}` TO `{new}`", name)

    def _migrate(self, name: str) -> None:
        """Change a table as gh-ost does: alter a copy, and swap both."""
        shadow = f"_{name}_gho"
        self._write_statement(f"CREATE TABLE `{shadow}` LIKE `{name}`", shadow)
        table = self.tables[name]
        for actions in self._actions(table):
            self._write_statement(f"ALTER TABLE `{shadow}` {', '.join(actions)}", shadow)
        # the copies of the rows have events, too
        for key in sorted(table.rows):
            self._row(Op.CREATE, shadow, table, key)
        self._write_statement(
            f"RENAME TABLE `{name}` TO `_{name}_del`, `{shadow}` TO `{name}`", name
        )
        self._write_statement(f"DROP TABLE `_{name}_del`", f"_{name}_del")

    def _alter(self, name: str) -> None:
        for actions in self._actions(self.tables[name]):
            self._write_statement(f"ALTER TABLE `{name}` {', '.join(actions)}", name)

    def _actions(self, table: SimulatedTable) -> Iterator[list[str]]:
        """Apply one statement's actions to a table, all at once, and return them."""
        before = [column for column in table.columns if column != "id"]
        self._chance.shuffle(before)
        actions: list[str] = []
        after = dict(table.columns)
        dropped_columns: list[str] = []
        for column in before[: self._chance.choice((0, 0, 1))]:
            actions.append(f"DROP COLUMN `{column}`")
            number = after.pop(column)
            dropped_columns.append(column)
            for row in table.rows.values():
                del row[number]
        movers = [column for column in before if column not in dropped_columns]
        movers = movers[: self._chance.choice((0, 1, 1, 2))]
        free = [n for n in NAMES if n not in before or n in dropped_columns or n in movers]
        targets = self._chance.sample(free, len(movers)) if len(free) >= len(movers) else []
        pairs = [(old, new) for old, new in zip(movers, targets, strict=False) if old != new]
        moved = {new: table.columns[old] for old, new in pairs}
        for old, new in pairs:
            actions.append(f"RENAME COLUMN `{old}` TO `{new}`")
            del after[old]
        if set(moved) & set(after):
            for old, new in pairs:  # without renames to a name that stays in use
                actions.remove(f"RENAME COLUMN `{old}` TO `{new}`")
                after[old] = table.columns[old]
        else:
            after.update(moved)
        free = [name for name in NAMES if name not in after]
        if free and (self._chance.random() < 0.5 or len(after) < 2):
            actions.append(self._add(table, after, self._chance.choice(free)))
        table.columns = after
        self._chance.shuffle(actions)
        if actions:
            yield actions

    def _add(self, table: SimulatedTable, after: dict[str, int], column: str) -> str:
        number = after[column] = next(self._numbers)
        kind = self._chance.choice(list(FILLED))
        if kind == COMPUTED:
            self._computed.add(number)
        for row in table.rows.values():
            row[number] = FILLED[kind]
        return f"ADD COLUMN `{column}` {kind}"

    def _change(self, name: str) -> None:
        table = self.tables[name]
        key = self._chance.randrange(4)
        if key not in table.rows:
            table.rows[key] = {n: self._chance.randrange(100) for n in table.columns.values()}
            table.rows[key][table.columns["id"]] = key
            self._row(Op.CREATE, name, table, key)
            return
        if self._chance.random() < 0.3:
            self._row(Op.DELETE, name, table, key)
            del table.rows[key]
            return
        other_columns = [number for column, number in table.columns.items() if column != "id"]
        changed = self._chance.sample(other_columns, min(len(other_columns), 1))
        for number in changed:
            table.rows[key][number] = self._chance.randrange(100)
        unchanged_columns = [c for c, n in table.columns.items() if c != "id" and n not in changed]
        unavailable = unchanged_columns[:1] if self._chance.random() < 0.3 else []
        self._row(Op.UPDATE, name, table, key, unavailable)

    # -- events -------------------------------------------------------------------------------

    def _at(self) -> MySqlPosition:
        return MySqlPosition("binlog.000001", next(self._place))

    def _write_statement(self, text: str, name: str) -> None:
        event = SchemaChange(self._table(name), "alter", text, position=self._at(), source=SOURCE)
        self.events.append(event)

    def _row(
        self, op: Op, name: str, table: SimulatedTable, key: int, unavailable: Sequence[str] = ()
    ) -> None:
        row: dict[str, Value] = {c: table.rows[key][n] for c, n in table.columns.items()}
        schema = TableSchema(tuple(Column(column, _INT) for column in table.columns))
        row.update(dict.fromkeys(unavailable, UNAVAILABLE))
        before, after = (row, None) if op is Op.DELETE else (None, row)
        self.events.append(
            DataChange(
                op,
                self._table(name),
                Key(("id",)),
                before=before,
                after=after,
                schema=schema,
                position=self._at(),
                source=SOURCE,
            )
        )

    def _table(self, name: str) -> TableId:
        return TableId(self._name, None, name)
