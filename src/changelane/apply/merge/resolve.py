# SPDX-License-Identifier: Apache-2.0
"""Steps into registers, with changes of keys: the whole rule, for any set of keys.

A row that moves takes along what its arrival lacks (docs/merge-rule.md, Key changes that lack
columns). An inherited cell has the order ``departure + order of the event that carried the value``:
a longer text of bytes, above everything before the move and below the arrival itself, so that
joining needs no exception and a late older event of the old key finds its place among the inherited
ones.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec

from changelane.apply.merge.batch_state import Work
from changelane.apply.merge.key_occupants import NOBODY
from changelane.apply.merge.key_timeline import Carried, Exit, Timeline, inherited, when
from changelane.apply.operations import Departure, Step, TableTruncate, Upsert
from changelane.apply.rejection import TOO_LATE, UNORDERED, Problem
from changelane.apply.row_state import (
    EMPTY,
    NOTHING,
    RULE,
    Cell,
    KeyState,
    Rule,
    lifted,
    settle,
    typed,
)
from changelane.apply.transactions import name_of
from changelane.position import DEPARTURE, at_phase, comparable


class Resolution(msgspec.Struct, frozen=True):
    """What a batch of steps makes of the keys that it touches.

    Attributes:
        states: The new registers of every key that the steps reach, settled.
        truncated: The new ``T``. When it rose, the caller evaluates every other row, too.
        problems: Steps that were refused, in the order of the log.
        tie_count: Columns whose newest order came with different values.
    """

    states: Mapping[bytes, KeyState]
    truncated: bytes = NOTHING
    problems: tuple[Problem, ...] = ()
    tie_count: int = 0


def reach(states: Mapping[bytes, KeyState], steps: Iterable[Step]) -> frozenset[bytes]:
    """Return every key whose state ``resolve`` needs for these steps.

    Keys that the steps name, and where ``moved_to`` leads from there. When a key in the answer is
    not in *states* yet, load its state and ask again.
    """
    keys: set[bytes] = set()
    todo: list[bytes | None] = []
    for step in steps:
        match step:
            case Upsert():
                todo += (step.key, step.moved_from)
            case Departure():
                todo += (step.key, step.moved_to)
            case TableTruncate():
                pass
    while todo:
        key = todo.pop()
        if key is not None and key not in keys:
            keys.add(key)
            todo.append(states.get(key, EMPTY).moved_to)
    return frozenset(keys)


def resolve(
    states: Mapping[bytes, KeyState],
    steps: Iterable[Step],
    *,
    truncated: bytes = NOTHING,
    horizon: bytes = NOTHING,
    complete: Collection[bytes] = (),
    keys: tuple[str, ...] = (),
    rule: Rule = RULE,
) -> Resolution:
    """Return the states that these steps lead to; the order in which they come does not matter.

    Args:
        states: The registers so far, at least those of the keys that :func:`reach` names; a key
            that is not in them was never seen.
        steps: Steps of one table.
        truncated: ``T``, the newest truncate so far.
        horizon: ``H``: tombstones up to here may be forgotten, so that an older upsert is refused
            of a row that is not there, or that may lack columns and of which nothing is so old:
            it may be of a row that went.
        complete: The keys whose rows lack no column: an older upsert has no effect on them.
        keys: The key columns. With them, the first half of a key change (a departure that tells
            where the row went) already makes the row at the new key, as far as it is known.
        rule: The decision points; only tests give another.
    """
    told = list(steps)
    work = _Resolving(
        states, truncated=truncated, horizon=horizon, complete=complete, keys=keys, rule=rule
    )
    work.open(told)
    for step in sorted(told, key=lambda step: step.order):
        work.take(step)
    work.follow(reach(states, told))
    return work.result()


class _Resolving(Work):
    """One call of :func:`resolve`."""

    def take(self, step: Step) -> None:
        """Note what a step says, unless its order cannot be compared."""
        match step:
            case TableTruncate():
                order = self.rule.order(step.order)
                if self.truncates and not comparable(self.truncates[0], order):
                    self.problems.append(Problem(None, UNORDERED, step))
                else:
                    self.truncates.append(order)
            case Departure():
                if self._fits(step.key, step):
                    self._depart(step)
            case Upsert(key=None):
                raise ValueError("a table without a key has no registers")
            case Upsert(key=bytes() as key):
                if self._fits(key, step):
                    self._arrive(key, step)

    def _fits(self, key: bytes, step: Upsert | Departure) -> bool:
        line = self.line(key)
        self.touched.add(key)
        seen = self.truncates[0] if self.truncates else max(line.state.deleted, line.state.upserted)
        if not seen and line.carried:
            seen = line.carried[0].order
        if not seen and line.exits:
            seen = next(iter(line.exits))[0]
        if not seen or comparable(seen, step.order):
            return True
        self.problems.append(Problem(key, UNORDERED, step))
        return False

    def _depart(self, step: Departure) -> None:
        transaction = name_of(step)
        if step.moved_to is not None and step.moved_to != step.key:
            heir = self.places.get((step.moved_to, transaction))
            if heir is not None:
                self.touched.add(heir.key)
                heir.add(step)
        if (place := self.places.get((step.key, transaction))) is None:
            self._leave(step, is_told=True)
        else:
            place.add(step)

    def _leave(self, step: Departure, *, is_told: bool) -> None:
        line = self.line(step.key)
        self.touched.add(step.key)
        order = self.rule.order(step.order)
        if order != step.order:
            step = msgspec.structs.replace(step, order=order)
        held = line.exits.get((order, step.moved_to))
        if held is None or (is_told and not (held.is_told and held.step.before)):
            line.exits[order, step.moved_to] = Exit(step, is_told=is_told)
        if (
            step.moved_to is not None
            and step.moved_to != step.key
            and (step.moved_to, name_of(step)) not in self.places
        ):
            arrivals = self.line(step.moved_to).arrivals
            arrivals[order] = step if is_told else arrivals.get(order)

    def _arrive(self, key: bytes, step: Upsert) -> None:
        transaction = name_of(step)
        if (place := self.places.get((key, transaction))) is not None:
            place.add(step)
        else:
            self._carry(key, step)
        if step.moved_from is None:
            return
        left = Departure(
            step.moved_from,
            at_phase(step.order, DEPARTURE),
            moved_to=key,
            transaction=step.transaction,
        )
        old = self.places.get((step.moved_from, transaction))
        if old is None:
            self._leave(left, is_told=False)
        elif step.moved_from != key:
            # until the message that tells the departure names the row
            self.touched.add(step.moved_from)
            old.add(left)

    def _carry(self, key: bytes, step: Upsert) -> None:
        order = self.rule.order(step.order)
        cells = {column: Cell(order, value) for column, value in step.values.items()}
        whole = order if step.whole else NOTHING
        self.line(key).carried.append(Carried(order, cells, whole, step))

    def follow(self, reached: frozenset[bytes]) -> None:
        """Settle which row each departure took, and take along what it knew."""
        todo: list[tuple[tuple[bytes, bytes, bytes], Callable[[], None]]] = []
        for key in sorted({place.key for place in self.places.values()}):
            todo += self._moments(key, reached)
        for key in reached:
            state = self.line(key).state
            if state.moved_to is not None and state.moved_to in reached:
                # Late older events of this key go where its row went.
                step = Departure(key, state.deleted, moved_to=state.moved_to)
                self.line(key).exits.setdefault(
                    (state.deleted, state.moved_to), Exit(step, is_told=False)
                )
        exits = [left for line in self.lines.values() for left in line.exits.values()]
        todo += [(when(left), partial(self._follow, left)) for left in exits]
        for _, go in sorted(todo, key=lambda one: one[0]):
            go()

    def _moments(
        self, key: bytes, reached: frozenset[bytes]
    ) -> list[tuple[tuple[bytes, bytes, bytes], Callable[[], None]]]:
        """Return what happens to a key inside transactions, each with its place in the log."""
        places = [place for place in self.places.values() if place.key == key and place.steps]
        line = self.line(key)
        told_before = self.states.get(key, EMPTY)
        for place in places:
            place.complete([told_before, *(each.rest for each in places)])
        own = frozenset().union(*(place.places for place in places))
        line.without(told_before, own, [place.rest for place in places], self.rule)
        if places and (forgotten := self.forgotten.get(key)):
            # A row may have been there; whatever was known of it, a later row replaced it.
            line.clears.append((forgotten, b""))
            line.unsure.add(forgotten)
            line.covered = max(line.covered, forgotten)
        todo: list[tuple[tuple[bytes, bytes, bytes], Callable[[], None]]] = []
        for place in places:
            for step in place.steps:
                if isinstance(step, Departure) and step.moved_to == key:
                    place.handed[step.order] = self._brought(step, key, NOBODY)
            for start, carried in inherited(told_before, place.places).items():
                place.handed.setdefault(start, []).extend(carried)
            more = line.between(place.key, place.first, place.last)
            todo.append(((place.first, b"", b""), partial(self._begin, place)))
            for order, steps in place.moments(more):
                go = partial(self._step, place, order, steps, reached)
                todo.append(((order, key, b""), go))
            end = max(place.last, max((step.order for step in more), default=NOTHING))
            todo.append(((end + b"\xff", b"", b""), partial(self._end, place)))
        return todo

    def _follow(self, left: Exit) -> None:
        step, line = left.step, self.lines[left.step.key]
        if step.order == line.state.deleted:
            # Remembered: late older events of the key go where its row went.
            row = line.view(
                max(self._life_start(line, step.order), self.horizon), step.order, self.rule
            )
        else:
            cleared = step.order
            start = self._life_start(line, cleared)
            floor = self._floor(step.key, start, end=cleared)
            row = line.view(floor, cleared, self.rule)
            # An event of an earlier life of the key must not follow later: either there was no
            # earlier life, or all that this one knows is newer than any event of an earlier one.
            forwards = self._cleared_before(line, cleared) == NOTHING or len(row.whole) == len(
                cleared
            )
            moved_to = (step.moved_to or b"") if forwards else b""
            line.clears.append((cleared, moved_to))
        if step.moved_to is not None and step.moved_to != step.key:
            self._inherit(step, step.moved_to, row)

    def _displace(self, key: bytes, line: Timeline) -> None:
        """Clear what a key held before a row arrived there: it left, or is about to."""
        for start in line.arrivals:
            if line.view(self._life_start(line, start), start, self.rule).order:
                line.clears.append((start, key))

    def result(self) -> Resolution:
        truncated = max(self.truncates, default=NOTHING)
        states: dict[bytes, KeyState] = {}
        ties = 0
        for key in sorted(self.touched):
            line = self.lines[key]
            self._displace(key, line)
            state, tied = self._joined(key, line, truncated)
            settled = settle(state, truncated, self.rule)
            kept = self._kept(key, settled, truncated)
            states[key] = msgspec.structs.replace(settled, transactions=kept)
            ties += tied
        self.problems.sort(key=lambda problem: (problem.step.order, problem.key or b""))
        return Resolution(states, self.rule.truncated(truncated), tuple(self.problems), ties)

    def _joined(self, key: bytes, line: Timeline, truncated: bytes) -> tuple[KeyState, int]:
        deleted, moved_to = max(line.clears, default=(NOTHING, b""))
        cleared = max(deleted, truncated)
        own = max((c.order for c in line.carried if not c.is_inherited), default=NOTHING)
        floor = self._floor(key, cleared)
        cells: dict[str, Cell] = {}
        tied: dict[str, bytes] = {}
        whole = NOTHING
        for carried in line.carried:
            if carried.is_inherited and carried.order > own:
                continue  # its arrival is not known yet
            if cleared < carried.order <= floor:
                if carried.step is not None:
                    self.problems.append(Problem(key, TOO_LATE, carried.step))
                continue
            whole = max(whole, carried.whole)
            for column, cell in carried.cells.items():
                held = cells.get(column)
                if held is None:
                    cells[column] = cell
                    continue
                if held.order == cell.order and typed(held.value) != typed(cell.value):
                    tied[column] = cell.order
                if self.rule.wins(cell, held):
                    cells[column] = cell
        kept = lifted(cells, whole, self.rule)
        ties = sum(column in kept and kept[column].order == at for column, at in tied.items())
        return KeyState(deleted, moved_to or None, whole, kept), ties
