# SPDX-License-Identifier: Apache-2.0
"""Which column of a table an event's column is, and which table an event's table is.

Names change hands in the course of a log: a column is renamed, dropped, and another comes under
its name. What stays is a *life*: one column from its birth to its drop, whatever it was called.
An event names its columns as they were called at its order; it raises the registers of lives.
Everything here is a function of the turns (:mod:`changelane.apply.schema_history`) and of orders:
replays, late events and batches do not matter.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from changelane.apply.schema_history import Added, Altered, Fill


class Life(NamedTuple):
    """One column, whatever it is called: its first name, and the number of the turn it came with.

    Number 0 was there before the first turn.
    """

    name: str
    born: int = 0


class _Change(NamedTuple):
    """What one turn does to names, all at once; *names* are those before it."""

    order: bytes
    ended: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    born: tuple[str, ...]


class Names:
    """Who was called what, and when: lives under the names that they had.

    A name that no change speaks of is one life from the beginning to the end.

    Args:
        changes: In the order of the log.
    """

    def __init__(self, changes: Sequence[_Change]) -> None:
        self._orders = [change.order for change in changes]
        self.states: list[dict[str, Life | None]] = [_first(changes)]
        for number, change in enumerate(changes, 1):
            self.states.append(_after(self.states[-1], change, number))

    def label(self, order: bytes) -> int:
        """Return how many changes stand before an order."""
        return bisect_left(self._orders, order)

    def life(self, name: str, label: int) -> Life | None:
        """Return who had a name after so many changes; ``None`` when nobody had."""
        return self.states[label].get(name, Life(name))

    def fitting(self, names: Iterable[str], label: int) -> int:
        """Return the least label from *label* on at which all names are somebody's.

        A snapshot that sorts below the stream may know the shape of a later time. Without such a
        label it is *label* itself.
        """
        wanted = tuple(names)
        for later in range(label, len(self.states)):
            if all(self.life(name, later) is not None for name in wanted):
                return later
        return label


def _first(changes: Sequence[_Change]) -> dict[str, Life | None]:
    """Return the names before all changes: those that the changes take away are there."""
    names: dict[str, Life | None] = {}
    for change in changes:
        for name in (*change.ended, *(old for old, _ in change.renamed)):
            names.setdefault(name, Life(name))
        for name in (*(new for _, new in change.renamed), *change.born):
            names.setdefault(name, None)
    return names


def _after(
    before: Mapping[str, Life | None], change: _Change, number: int
) -> dict[str, Life | None]:
    names = dict(before)
    for name in (*change.ended, *(old for old, _ in change.renamed)):
        names[name] = None
    for old, new in change.renamed:
        if (life := before.get(old, Life(old))) is not None:
            names[new] = life
    for name in change.born:
        names[name] = Life(name, number)
    return names


class Filling(NamedTuple):
    """What events from before a column came leave in it.

    Attributes:
        column: The column of the table.
        added: What the statement that brought it says.
        order: The place of that statement.
    """

    column: str
    added: Added
    order: bytes


class Reading(NamedTuple):
    """How the events of one schema and time are read.

    Attributes:
        columns: Name in the event -> column of the table; ``None`` = the column is gone.
        fillings: What the event leaves in columns that came after it.
    """

    columns: Mapping[str, str | None]
    fillings: tuple[Filling, ...]


class Step(NamedTuple):
    """What one turn does to the columns of a table that has them by their lake names.

    Attributes:
        dropped: Columns that go first.
        renamed: Then old and new names, one after the other; no new name is there before.
    """

    order: bytes
    part: int
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


class Shape:
    """The columns of one table in the course of its log.

    Names that differ by case are one, as in the tables of the lake.

    Args:
        turns: The table's, each once, in the order of the log.
        keep: A dropped column stays in the table; it steps aside when its name is needed.
        turned: How many of the turns the table has followed; ``None`` = all.
    """

    def __init__(
        self, turns: Sequence[Altered], *, keep: bool = True, turned: int | None = None
    ) -> None:
        self.turns = turns
        self._keep = keep
        self._turned = len(turns) if turned is None else turned
        self._spelled: dict[str, str] = {}
        changes = [self._change(turn, before) for before, turn in enumerate(turns)]
        self.names = Names(changes)
        self.steps: list[Step] = []
        self._lake = self._placed()

    def _change(self, turn: Altered, before: int) -> _Change:
        born = [one.name for one in turn.added if not self._is_there(one, before)]
        for name in (*born, *(new for _, new in turn.renamed)):
            self._spelled.setdefault(name.lower(), name)
        # a rename that changes only the case changes nothing here
        renamed = tuple((old, new) for old, new in map(_lower, turn.renamed) if old != new)
        return _Change(turn.order, _lower(turn.dropped), renamed, _lower(born))

    def _is_there(self, added: Added, before: int) -> bool:
        if not added.may_exist:
            return False
        known: bool | None = None
        for turn in self.turns[:before]:
            if added.name.lower() in _lower((*turn.dropped, *(old for old, _ in turn.renamed))):
                known = False
            if added.name.lower() in _lower(
                (*(new for _, new in turn.renamed), *(one.name for one in turn.added))
            ):
                known = True
        return known is not False

    def _placed(self) -> dict[Life, str | None]:
        """Return the lake's name of every life that the turns speak of, and collect the steps."""
        placed: dict[Life, str | None] = {
            life: life.name for life in self.names.states[0].values() if life is not None
        }
        for number, turn in enumerate(self.turns[: self._turned], 1):
            before, after = self.names.states[number - 1], self.names.states[number]
            renamed: list[tuple[str, str]] = []
            dropped: list[str] = []
            living = {life for life in after.values() if life is not None}
            for name, life in before.items():
                if life is not None and life not in living and not self._keep:
                    dropped.append(self.spelled(placed.get(life) or name))
                    placed[life] = None
            taken = {
                name: life
                for name, life in after.items()
                if life is not None and before.get(name) != life
            }
            self._step_aside(placed, taken, number, renamed)
            # columns that swap their names pass each other under names of their own
            waits: list[tuple[str, str]] = []
            for name, life in taken.items():
                held = placed.get(life)
                if held is None or held == name:
                    placed[life] = name
                    continue
                if any(other != life and at == name for other, at in placed.items()):
                    aside = f"{name}__turn_{number}"
                    renamed.append((self.spelled(held), aside))
                    waits.append((aside, self.spelled(name)))
                else:
                    renamed.append((self.spelled(held), self.spelled(name)))
                placed[life] = name
            self.steps.append(Step(turn.order, turn.part, (*renamed, *waits), tuple(dropped)))
        return placed

    def _step_aside(
        self,
        placed: dict[Life, str | None],
        taken: Mapping[str, Life],
        number: int,
        renamed: list[tuple[str, str]],
    ) -> None:
        """Give dropped columns that are kept another name where a new one needs theirs."""
        living = {life for life in self.names.states[number].values() if life is not None}
        for life, held in placed.items():
            if held is not None and held in taken and life not in living:
                aside = f"{held}__dropped_{number}"
                renamed.append((self.spelled(held), aside))
                placed[life] = aside

    def spelled(self, name: str) -> str:
        """Return a lower-case name as statements spell it."""
        return self._spelled.get(name, name)

    def column(self, life: Life) -> str | None:
        """Return the lake's name of a life, in lower case; ``None`` when its column went."""
        if life in self._lake:
            return self._lake[life]
        # a turn that the table did not follow may bring a name that another column has there
        return None if life.name in self._lake.values() else life.name

    def reading(self, names: Iterable[str], order: bytes) -> Reading:
        """Return how events are read that name these columns at an order."""
        told = {name: name.lower() for name in names}
        label = self.names.fitting(told.values(), self.names.label(order))
        columns: dict[str, str | None] = {}
        for name, lower in told.items():
            life = self.names.life(lower, label)
            if life is None:
                life = self._gone(lower, label)
            columns[name] = self.column(Life(lower, -1) if life is None else life)
        return Reading(columns, tuple(self._fillings(label)))

    def _gone(self, name: str, label: int) -> Life | None:
        """Return whose a name was that nobody has; kept columns go on taking their values."""
        if not self._keep:
            return None
        for state in reversed(self.names.states[:label]):
            if (life := state.get(name)) is not None:
                return life
        return None

    def _fillings(self, label: int) -> Iterable[Filling]:
        for number, turn in enumerate(self.turns[label:], label + 1):
            for added in turn.added:
                life = Life(added.name.lower(), number)
                column = self.column(life)
                born = self.names.states[number].get(life.name) == life
                if born and column is not None and added.fill is not Fill.NULL:
                    yield Filling(column, added, turn.order)

    @property
    def fillings(self) -> tuple[Filling, ...]:
        """What rows from before get in all columns that came with a value."""
        return tuple(self._fillings(0))

    def cuts(self) -> list[bytes]:
        """Return the orders at which names change."""
        return sorted({turn.order for turn in self.turns})
