# SPDX-License-Identifier: Apache-2.0
"""Which rows have one key inside one transaction, and which of them stays.

Under deferred constraints a key may have several occupants until the commit. Every event adds the
row after it and takes away the row before it: full before images name that row, so that the events
of a transaction may be cut and come in any order, as long as all of them are remembered
(:class:`changelane.apply.row_state.Within`). An event without such an image is of the row that
arrived last, as it is under immediate constraints.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from changelane.apply.merge.key_timeline import Carried, agrees, compared
from changelane.apply.operations import Departure, Upsert
from changelane.apply.row_state import EMPTY, NOTHING, Cell, KeyState, Rule, Within, join, lifted
from changelane.apply.transactions import IMMEDIATE
from changelane.position import ARRIVAL, DEPARTURE, at_phase, domain_of
from changelane.types import Value

NOBODY: Final = Carried(NOTHING, {}, NOTHING)


class Occupant:
    """A row that has the key.

    Attributes:
        start: Where it arrived, of phase 0; nothing for the row that was there before.
        carried: What the events of the transaction say about it.
    """

    __slots__ = ("carried", "start")

    def __init__(self, start: bytes, carried: list[Carried]) -> None:
        self.start = start
        self.carried = carried

    def row(self, rule: Rule) -> Carried:
        """Return the row as it is now."""
        cells: dict[str, Cell] = {}
        whole = max((carried.whole for carried in self.carried), default=NOTHING)
        for carried in self.carried:
            for column, cell in carried.cells.items():
                held = cells.get(column)
                if held is None or rule.wins(cell, held):
                    cells[column] = cell
        kept = lifted(cells, whole, rule)
        return Carried(max((whole, *(cell.order for cell in kept.values()))), kept, whole)


class Place:
    """One key inside one transaction.

    Attributes:
        key: The key.
        parts: How many columns the key has.
        within: What is remembered of it.
        handed: What rows that arrive bring along, by the order of their departure.
    """

    def __init__(self, key: bytes, transaction: bytes, parts: int, rule: Rule) -> None:
        self.key = key
        self.transaction = transaction
        self.parts = parts
        self.rule = rule
        self.steps: list[Upsert | Departure] = []
        self.handed: dict[bytes, list[Carried]] = {}
        self.rest: KeyState = EMPTY
        self._fresh: set[int] = set()
        self._known: set[bytes] = set()
        self._present: list[Occupant] = []
        self._base: Occupant | None = None
        self._was_known = False
        self._is_immediate = False
        self._left: tuple[Departure, Occupant | None] | None = None

    def remember(self, within: Within) -> None:
        """Take in what an earlier batch told."""
        self.rest = join(self.rest, within.rest)
        for step in within.steps:
            self.add(step, is_fresh=False)
            self._known.add(step.order)

    def add(self, step: Upsert | Departure, *, is_fresh: bool = True) -> None:
        """Take in a step of the key, or a departure that leads to it; each once."""
        if step not in self.steps:
            self.steps.append(step)
        if is_fresh:
            self._fresh.add(id(step))

    def complete(self, known: Sequence[KeyState]) -> None:
        """Take in what was applied before it was known that rows move in this transaction.

        Arrivals whose departures came later. And a departure, with an empty image: what it was
        compared with then is not known any more.

        Args:
            known: The registers of the key, and those that transactions remember of it.
        """
        state = known[0]
        if state.deleted and state.deleted not in self._known:
            departures = [
                msgspec.structs.replace(step, before={})
                for step in self.steps
                if isinstance(step, Departure)
                and step.key == self.key
                and step.order == state.deleted
            ]
            # a delete at the place of a step; what leads to the key itself marks an arrival there
            is_placed = state.deleted[:-1] in self.places and state.moved_to != self.key
            if not departures and is_placed:
                departures = [Departure(self.key, state.deleted, state.moved_to, {})]
            self.steps += departures
        told = {step.order for step in self.steps if isinstance(step, Upsert)}
        for step in [step for step in self.steps if isinstance(step, Departure)]:
            order = at_phase(step.order, ARRIVAL)
            if step.moved_to != self.key or step.key == self.key or order in told:
                continue
            cells = [cell for one in known for cell in one.cells.items() if cell[1].order == order]
            values = {column: cell.value for column, cell in cells}
            whole = any(one.whole == order for one in known)
            if values or whole:
                self.steps.append(Upsert(self.key, order, values, whole, moved_from=step.key))

    @property
    def places(self) -> frozenset[bytes]:
        """The places of the steps in the log, without their phases."""
        return frozenset(step.order[:-1] for step in self.steps)

    @property
    def is_fresh(self) -> bool:
        """Whether this batch told of it."""
        return bool(self._fresh)

    @property
    def first(self) -> bytes:
        """The order of the first step."""
        return min(step.order for step in self.steps)

    @property
    def last(self) -> bytes:
        """The order of the last step."""
        return max(step.order for step in self.steps)

    def inherited(self, start: bytes, brought: Sequence[Carried]) -> list[Carried]:
        """Return what a row is known to have brought along, of columns that *brought* lacks."""
        named = {column for carried in brought for column in carried.cells}
        return [
            carried._replace(cells={c: v for c, v in carried.cells.items() if c not in named})
            for carried in self.handed.get(start, ())
            if carried.is_inherited
        ]

    # The transaction, step by step

    @property
    def within(self) -> Within:
        """What is remembered of the place."""
        steps = tuple(sorted(self.steps, key=lambda step: step.order))
        return Within(self.transaction, steps, self.rest)

    def begin(self, base: Carried, *, is_empty: bool) -> None:
        """Begin with the row that was there before, which nothing may have told.

        Args:
            base: What is known of it.
            is_empty: It is known that there was none.
        """
        self._present = []
        self._is_immediate = any(self._proves_immediate(step) for step in self.steps)
        self._was_known = bool(base.order)
        self._base = None if is_empty else Occupant(NOTHING, [base] if base.order else [])

    def _proves_immediate(self, step: Upsert | Departure) -> bool:
        """Say whether a step tells that a key never has two rows."""
        is_departure = isinstance(step, Departure) and self.is_key_only(step)
        return is_departure and domain_of(step.order) in IMMEDIATE

    def is_key_only(self, step: Departure) -> bool:
        """Return whether a departure has a before image of no more than the key."""
        return bool(step.before) and not named(step.before, self.parts)

    def moments(self, more: Iterable[Upsert]) -> Iterator[tuple[bytes, list[Upsert | Departure]]]:
        """Return the steps by order, with more that were applied before any row moved."""
        found: dict[bytes, list[Upsert | Departure]] = {}
        for step in (*self.steps, *more):
            is_own = isinstance(step, Upsert) or step.key == self.key
            order = step.order if is_own else at_phase(step.order, ARRIVAL)
            found.setdefault(order, []).append(step)
        yield from sorted(found.items())

    def leave(self, step: Departure) -> Carried | None:
        """Take away the row that a departure names; return what is known of it."""
        occupant = self._named(step.before)
        self._left = (step, occupant)
        if occupant is None:
            return None
        row = occupant.row(self.rule)
        if occupant is self._base:
            self._base = None
        else:
            self._present.remove(occupant)
        return row

    @property
    def is_shared(self) -> bool:
        """Whether more than one known row has the key."""
        is_known = self._base is not None and bool(self._base.carried)
        return len(self._present) + is_known > 1

    def is_told_now(self, step: Upsert | Departure) -> bool:
        """Say whether this batch told a step."""
        return id(step) in self._fresh

    def forget(self, step: Departure) -> None:
        """Take away all rows: nothing tells which of them a departure took."""
        self._present, self._base, self._left = [], None, (step, None)

    def upsert(self, order: bytes, steps: list[Upsert | Departure]) -> None:
        """Let a row arrive, or change one."""
        upserts = [step for step in steps if isinstance(step, Upsert)]
        start = at_phase(order, DEPARTURE)
        comes = any(isinstance(step, Departure) or step.moved_from for step in steps)
        carried = [self._carried(step) for step in upserts]
        if comes:
            carried += self.handed.get(start, ())
        elif not upserts[0].inserts:
            occupant = self._named(upserts[0].before)
            if occupant is not None:
                occupant.carried += carried
                return
        if self._is_immediate:
            self._present, self._base = [], None
        self._present.append(Occupant(start, carried))

    def _carried(self, step: Upsert) -> Carried:
        order = self.rule.order(step.order)
        cells = {column: Cell(order, value) for column, value in step.values.items()}
        told = step if id(step) in self._fresh else None
        return Carried(order, cells, order if step.whole else NOTHING, told)

    def _named(self, before: Mapping[str, Value] | None) -> Occupant | None:
        """Return the occupant that a before image names; the last that arrived without one."""
        there = self._present[::-1]
        if self._base is not None:
            there.append(self._base)
        if not there:
            return None
        if not before:
            return there[0]
        known: list[tuple[int, int, Occupant]] = []
        for number, occupant in enumerate(there):
            row = occupant.row(self.rule)
            if agrees(before, row):
                known.append((len(compared(before, row)), -number, occupant))
        if known:
            return max(known, key=lambda one: one[:2])[2]
        return self._base or there[0]

    # The end

    def stays(self, cleared: bytes) -> Occupant | None:
        """Return the row that has the key in the end, above the newest truncate."""
        for occupant in self._present[::-1]:
            if occupant.row(self.rule).order > cleared:
                return occupant
        return self._base

    def told_of(self, occupant: Occupant) -> list[Carried]:
        """Return what the transaction told of a row."""
        return occupant.carried[not occupant.start and self._was_known :]

    @property
    def left(self) -> tuple[bytes, bytes]:
        """The newest departure, and where its row went if it was the one from before."""
        if self._left is None:
            return (NOTHING, b"")
        step, occupant = self._left
        was_there = occupant is not None and not occupant.start
        return (step.order, (step.moved_to or b"") if was_there else b"")


def named(before: Mapping[str, Value] | None, parts: int) -> bool:
    """Say whether a before image tells more of a row than a key of so many parts."""
    return before is not None and len(before) > parts
