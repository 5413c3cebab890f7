# SPDX-License-Identifier: Apache-2.0
"""The keys of one batch: timelines, and keys inside transactions."""

from collections.abc import Collection, Iterable, Mapping

from changelane.apply.keys import key_values
from changelane.apply.merge.key_occupants import NOBODY, Place, named
from changelane.apply.merge.key_timeline import Carried, Timeline, foreign
from changelane.apply.operations import Departure, Step, Upsert
from changelane.apply.rejection import AMBIGUOUS, Problem
from changelane.apply.row_state import EMPTY, NOTHING, Cell, KeyState, Rule, Within, is_live
from changelane.apply.transactions import IMMEDIATE, name_of
from changelane.position import ARRIVAL, DEPARTURE, at_phase, domain_of


class Work:
    """The keys of one batch, and what becomes of them."""

    def __init__(
        self,
        states: Mapping[bytes, KeyState],
        *,
        truncated: bytes,
        horizon: bytes,
        complete: Collection[bytes],
        keys: tuple[str, ...],
        rule: Rule,
    ) -> None:
        self.states = states
        self.truncates = [truncated] if truncated else []
        self.horizon = horizon
        self.complete = complete
        self.keys = keys
        self.rule = rule
        self.lines: dict[bytes, Timeline] = {}
        self.places: dict[tuple[bytes, bytes | None], Place] = {}
        self.forgotten: dict[bytes, bytes] = {}  # up to where, by key
        self.touched: set[bytes] = set()
        self.problems: list[Problem] = []

    def line(self, key: bytes) -> Timeline:
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Timeline(self.states.get(key, EMPTY))
        return line

    def open(self, told: Iterable[Step]) -> None:
        """Find the keys inside transactions that may have several rows.

        Those that a departure leaves, or leads to, if its before image tells more than the key, or
        nothing says that constraints are immediate.
        """
        for key, state in self.states.items():
            for within in state.transactions:
                if within.steps:
                    self._place(key, within.transaction).remember(within)
                else:
                    self.forgotten[key] = within.last
        steps = list(told)
        departures = {(step.key, step.order) for step in steps if isinstance(step, Departure)}
        for step in steps:
            if isinstance(step, Departure):
                left, came = step.key, step.moved_to
                is_named = named(step.before, self._parts(left))
                is_told = is_named or domain_of(step.order) not in IMMEDIATE
            elif isinstance(step, Upsert) and step.moved_from is not None:
                # the half of a key change that tells no row that left
                left, came = step.moved_from, step.key
                start = at_phase(step.order, DEPARTURE)
                is_told = (left, start) not in departures
                if (left, name_of(step)) not in self.places:
                    is_told = is_told and not self._is_applied(left, start)
            else:
                continue
            transaction = name_of(step)
            if came is None or came == left or transaction is None:
                continue
            if is_told and step.order > self.horizon:
                self._place(left, transaction)
                self._place(came, transaction)

    def _is_applied(self, key: bytes, start: bytes) -> bool:
        """Say whether an earlier batch may have applied a departure that named no row.

        A later departure hides it; where constraints are immediate for all that is known, the
        arrival of the row that left then needs no more.
        """
        deleted = self.states.get(key, EMPTY).deleted
        return deleted >= start if domain_of(start) in IMMEDIATE else deleted == start

    def _parts(self, key: bytes) -> int:
        """Return how many columns the key has."""
        return len(self.keys) or len(key_values(key))

    def _place(self, key: bytes, transaction: bytes) -> Place:
        place = self.places.get((key, transaction))
        if place is None:
            parts = self._parts(key)
            place = self.places[key, transaction] = Place(key, transaction, parts, self.rule)
        return place

    def _cleared_before(self, line: Timeline, end: bytes) -> bytes:
        """Return the newest departure or truncate before *end*."""
        cleared = [order for order, _ in line.clears if order < end]
        cleared += [order for order in self.truncates if order < end]
        return max(cleared, default=NOTHING)

    def _life_start(self, line: Timeline, end: bytes) -> bytes:
        """Return after what the life of the row began that a key had just before *end*."""
        arrived = (
            at_phase(carried.order, DEPARTURE)
            for carried in line.carried
            if carried.step is not None and carried.step.moved_from and carried.order < end
        )
        return max(self._cleared_before(line, end), max(arrived, default=NOTHING))

    def _floor(self, key: bytes, cleared: bytes, *, end: bytes | None = None) -> bytes:
        """Return up to where what was told of a key is not of the row before *end*, or may not be.

        What is as old as the horizon may be of a row whose departure was forgotten, unless the
        row was there then, or lacks nothing that it could tell.
        """
        line = self.lines[key]
        orders = [*filter(None, (line.state.whole, *(c.order for c in line.state.cells.values())))]
        if is_live(line.state, max(self.truncates, default=NOTHING), self.rule) and (
            key in self.complete or min(orders) <= self.horizon
        ):
            return cleared
        floor = max(cleared, self.horizon)
        wholes = (carried.whole for carried in line.carried)
        is_covered = any(floor < whole and (end is None or whole < end) for whole in wholes)
        return cleared if is_covered else floor

    def _inherit(self, step: Departure, moved_to: bytes, row: Carried) -> None:
        brought = self._brought(step, moved_to, row)
        for place in self.places.values():
            if place.key == moved_to and step.order[:-1] in place.places:
                place.handed[step.order] = brought + place.inherited(step.order, brought)
                return
        heir = self.line(moved_to)
        if brought:
            self.touched.add(moved_to)
            heir.carried += brought

    def _brought(self, step: Departure, moved_to: bytes, row: Carried) -> list[Carried]:
        """Return what a row brings to the key that it moves to."""
        width = len(step.order)
        found: list[Carried] = []

        def inherited(order: bytes) -> bytes:
            return step.order + order[-width:]

        cells = {c: Cell(inherited(cell.order), cell.value) for c, cell in row.cells.items()}
        for column, value in (step.before or {}).items():
            cells[column] = Cell(inherited(step.order), value)
        if cells or row.whole:
            whole = inherited(row.whole) if row.whole else NOTHING
            found.append(Carried(inherited(step.order), cells, whole, is_inherited=True))
        values = key_values(moved_to) if self.keys else ()
        if self.keys and len(values) == len(self.keys):
            order = self.rule.order(at_phase(step.order, ARRIVAL))
            named_cells = {c: Cell(order, v) for c, v in zip(self.keys, values, strict=True)}
            found.append(Carried(order, named_cells, NOTHING))
        return found

    def _begin(self, place: Place) -> None:
        """Begin a transaction at a key: with the row that was there."""
        line = self.lines[place.key]
        start = self._life_start(line, place.first)
        floor = self._floor(place.key, start, end=place.first)
        base = line.view(floor, place.first, self.rule)
        cleared = self._cleared_before(line, place.first)
        is_empty = not base.order and bool(cleared) and cleared not in line.unsure
        place.begin(base, is_empty=is_empty)

    def _step(
        self,
        place: Place,
        order: bytes,
        steps: list[Upsert | Departure],
        reached: frozenset[bytes],
    ) -> None:
        left = [one for one in steps if isinstance(one, Departure) and one.key == place.key]
        if not left:
            place.upsert(order, steps)
            return
        step = max(left, key=lambda one: (one.before == {}, len(one.before or ())))
        if place.is_key_only(step) and domain_of(step.order) not in IMMEDIATE and place.is_shared:
            if place.is_told_now(step) and place.last > self.lines[place.key].covered:
                self.problems.append(Problem(step.key, AMBIGUOUS, step))
            place.forget(step)
            return
        row = place.leave(step)
        if step.moved_to is not None and step.moved_to != step.key and step.moved_to in reached:
            fullest = max(left, key=lambda one: len(one.before or ()))
            self._inherit(fullest, step.moved_to, row or NOBODY)

    def _end(self, place: Place) -> None:
        """Settle which row has the key after a transaction."""
        line = self.lines[place.key]
        place.rest = line.rest(place.last, self.rule)
        truncated = max(self.truncates, default=NOTHING)
        occupant = place.stays(truncated)
        if occupant is None or not occupant.carried:
            order, moved_to = place.left
            if order:
                line.clears.append((order, moved_to))
                if occupant is not None:
                    line.unsure.add(order)
            return
        if occupant.start:
            line.clears.append((occupant.start, place.key))
        line.carried += place.told_of(occupant)

    def _kept(self, key: bytes, state: KeyState, truncated: bytes) -> tuple[Within, ...]:
        """Return what is still remembered of transactions at a key.

        What is older than the horizon, a truncate, or an event of an earlier batch that set the
        whole row later, cannot matter any more.
        """
        places = [place for place in self.places.values() if place.key == key and place.steps]
        if not places:
            return self.states.get(key, EMPTY).transactions
        own = frozenset().union(*(place.places for place in places))
        later = foreign(state, own)
        floor = max(self.horizon, truncated)
        covered = max(floor, later.whole)
        # all or none: what one knows is without what the others do
        forgotten = self.forgotten.get(key, NOTHING)
        kept: list[Within] = []
        if all(place.last <= (floor if place.is_fresh else covered) for place in places):
            forgotten = max(forgotten, *(place.last for place in places))
        else:
            kept = sorted((place.within for place in places), key=lambda one: one.transaction)
        if forgotten > floor:
            kept.insert(0, Within(NOTHING, (), KeyState(forgotten)))
        return tuple(kept)
