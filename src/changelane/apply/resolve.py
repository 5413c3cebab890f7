# SPDX-License-Identifier: Apache-2.0
"""Steps into registers, with changes of keys: the whole rule, for any set of keys.

A row that moves takes along what its arrival lacks (apply.md section 4). An inherited cell has the
order ``departure + order of the event that carried the value``: a longer text of bytes, above
everything before the move and below the arrival itself, so that joining needs no exception and
a late older event of the old key finds its place among the inherited ones.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from changelane.apply.keys import key_values
from changelane.apply.registers import (
    EMPTY,
    NOTHING,
    RULE,
    Cell,
    KeyState,
    Rule,
    is_live,
    lifted,
    settle,
    typed,
)
from changelane.apply.steps import Departure, Step, TableTruncate, Upsert
from changelane.apply.transactions import same_transaction, transaction_of
from changelane.position import ARRIVAL, DEPARTURE, at_phase, comparable
from changelane.types import Value

TOO_LATE: Final = "too_late"
AMBIGUOUS: Final = "ambiguous_key_move"
UNORDERED: Final = "unordered"


class Problem(NamedTuple):
    """A step that was not applied, and why; it belongs into the quarantine."""

    key: bytes | None
    code: str
    step: Step


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
    work = _Work(
        states, truncated=truncated, horizon=horizon, complete=complete, keys=keys, rule=rule
    )
    for step in sorted(told, key=lambda step: step.order):
        work.take(step)
    work.follow(reach(states, told))
    return work.result()


class _Carried(NamedTuple):
    """What one event, or the state so far, says about a row."""

    order: bytes
    cells: Mapping[str, Cell]
    whole: bytes
    step: Upsert | None = None
    is_inherited: bool = False


class _Exit(NamedTuple):
    """A departure: up to *cleared* (exclusive) its row lived, then it arrived at *moved_to*."""

    step: Departure
    is_told: bool


class _Timeline:
    """All that is known of one key in this batch."""

    __slots__ = ("arrivals", "carried", "clears", "exits", "state")

    def __init__(self, state: KeyState) -> None:
        self.state = state
        self.arrivals: dict[bytes, Departure | None] = {}  # from where, as far as it was told
        self.carried: list[_Carried] = []
        self.clears: list[tuple[bytes, bytes]] = []  # (order, moved_to or b"")
        self.exits: dict[tuple[bytes, bytes | None], _Exit] = {}
        if state.cells or state.whole:
            self.carried.append(_Carried(state.upserted, state.cells, state.whole))
        if state.deleted:
            self.clears.append((state.deleted, state.moved_to or b""))

    def view(self, low: bytes, high: bytes, rule: Rule) -> _Carried:
        """Return the row as of *high*, from what was told after *low*."""
        cells: dict[str, Cell] = {}
        whole = NOTHING
        for carried in self.carried:
            if low < carried.whole < high:
                whole = max(whole, carried.whole)
            for column, cell in carried.cells.items():
                if low < cell.order < high:
                    held = cells.get(column)
                    if held is None or rule.wins(cell, held):
                        cells[column] = cell
        kept = lifted(cells, whole, rule)
        newest = max((whole, *(cell.order for cell in kept.values())))
        return _Carried(newest, kept, whole)


class _Work:
    """One call of :func:`resolve`."""

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
        self.lines: dict[bytes, _Timeline] = {}
        self.touched: set[bytes] = set()
        self.problems: list[Problem] = []

    def line(self, key: bytes) -> _Timeline:
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = _Timeline(self.states.get(key, EMPTY))
        return line

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
                    self._leave(step, is_told=True)
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

    def _leave(self, step: Departure, *, is_told: bool) -> None:
        line = self.line(step.key)
        self.touched.add(step.key)
        order = self.rule.order(step.order)
        if order != step.order:
            step = msgspec.structs.replace(step, order=order)
        held = line.exits.get((order, step.moved_to))
        if held is None or (is_told and not (held.is_told and held.step.before)):
            line.exits[order, step.moved_to] = _Exit(step, is_told=is_told)
        if step.moved_to is not None and step.moved_to != step.key:
            arrivals = self.line(step.moved_to).arrivals
            arrivals[order] = step if is_told else arrivals.get(order)

    def _arrive(self, key: bytes, step: Upsert) -> None:
        order = self.rule.order(step.order)
        cells = {column: Cell(order, value) for column, value in step.values.items()}
        whole = order if step.whole else NOTHING
        self.line(key).carried.append(_Carried(order, cells, whole, step))
        if step.moved_from is not None:
            left = Departure(
                step.moved_from,
                at_phase(step.order, DEPARTURE),
                moved_to=key,
                transaction=step.transaction,
            )
            self._leave(left, is_told=False)

    def follow(self, reached: frozenset[bytes]) -> None:
        """Settle which row each departure took, and take along what it knew."""
        for key in reached:
            state = self.states.get(key, EMPTY)
            if state.moved_to is not None:
                # Late older events of this key go where its row went.
                step = Departure(key, state.deleted, moved_to=state.moved_to)
                self.line(key).exits.setdefault(
                    (state.deleted, state.moved_to), _Exit(step, is_told=False)
                )
        exits = [left for line in self.lines.values() for left in line.exits.values()]
        for left in sorted(exits, key=_when):
            self._follow(left)

    def _follow(self, left: _Exit) -> None:
        step, line = left.step, self.lines[left.step.key]
        if step.order == line.state.deleted:
            # Remembered: late older events of the key go where its row went.
            row = line.view(
                max(self._life_start(line, step.order), self.horizon), step.order, self.rule
            )
        else:
            cleared = self._occupant(left, line)
            if cleared is None:
                return
            start = self._life_start(line, cleared)
            floor = self._floor(step.key, start, end=cleared)
            row = line.view(floor, cleared, self.rule)
            # An event of an earlier life of the key must not follow later: either there was no
            # earlier life, or all that this one knows is newer than any event of an earlier one.
            forwards = self._cleared_before(line, cleared) == NOTHING or len(row.whole) == len(
                step.order
            )
            moved_to = (step.moved_to or b"") if forwards else b""
            if cleared != step.order:  # another row has the key now
                moved_to = step.key
                if not _agrees(step.before or {}, row):
                    row = _Carried(NOTHING, {}, NOTHING)
            line.clears.append((cleared, moved_to))
        if step.moved_to is not None and step.moved_to != step.key:
            self._inherit(step, row)

    def _cleared_before(self, line: _Timeline, end: bytes) -> bytes:
        """Return the newest departure or truncate before *end*."""
        cleared = [order for order, _ in line.clears if order < end]
        cleared += [order for order in self.truncates if order < end]
        return max(cleared, default=NOTHING)

    def _life_start(self, line: _Timeline, end: bytes) -> bytes:
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

    def _occupant(self, left: _Exit, line: _Timeline) -> bytes | None:
        """Return up to where the row that left had lived; ``None`` when nothing decides it.

        Under deferred constraints a key may have two occupants inside one transaction: the row
        that arrived, and the earlier one that is still to leave (apply.md section 4).
        """
        step = left.step
        before = step.before or {}
        displaced = self._displaced(step, line)
        rival = self._rival(step, line)
        start = max(displaced or NOTHING, rival or NOTHING)
        if not start:
            return step.order
        if not left.is_told:
            return None  # the message that tells the departure names the occupant, or nothing does
        newer = line.view(start, step.order, self.rule)
        if not _agrees(before, newer):
            return start
        if line.state.deleted == start and line.state.moved_to == step.key:
            # The earlier row was overwritten in an earlier batch.
            if line.state.upserted > step.order:
                return start  # a replay: the row that arrived has outlived this departure
            is_decided = bool(_compared(before, newer) - set(self.keys))
        else:
            earlier = line.view(self._life_start(line, start), start, self.rule)
            is_decided = (
                not earlier.order
                or not _agrees(before, earlier)
                or _same_row(newer, earlier)
                or _compared(before, newer) > _compared(before, earlier)
            )
        if is_decided or max(line.state.deleted, *self.truncates, NOTHING) > step.order:
            return step.order
        self.problems.append(Problem(step.key, AMBIGUOUS, step))
        return None

    def _rival(self, step: Departure, line: _Timeline) -> bytes | None:
        """Return where the newest arrival at the key is, earlier in a departure's transaction."""
        cleared = max((order for order, _ in line.clears if order < step.order), default=NOTHING)
        found = [
            at_phase(carried.order, DEPARTURE)
            for carried in line.carried
            if carried.step is not None
            and carried.step.moved_from is not None
            and cleared < carried.order < step.order
            and same_transaction(carried.step, step)
        ]
        return max(found, default=None)

    def _displaced(self, step: Departure, line: _Timeline) -> bytes | None:
        """Return the same for an arrival that took a held key in an earlier batch.

        Such an arrival left a departure to the key itself (:meth:`_displace`).
        """
        start = line.state.deleted
        if line.state.moved_to != step.key or start >= step.order:
            return None
        place = transaction_of(start)
        return start if place is not None and place == transaction_of(step.order) else None

    def _displace(self, key: bytes, line: _Timeline) -> None:
        """Clear what a key held before a row arrived there: it left, or is about to."""
        for start, left in line.arrivals.items():
            held = line.view(self._life_start(line, start), start, self.rule)
            if held.order or self._may_hide_another(left, start, line):
                line.clears.append((start, key))

    def _may_hide_another(self, left: Departure | None, start: bytes, line: _Timeline) -> bool:
        """Say whether a key of which nothing was told before may be held all the same.

        The row that nothing told may leave in a later batch of the transaction. Only a before
        image that tells more than the key could say that it is this one.
        """
        if self._cleared_before(line, start) or transaction_of(start) is None:
            return False
        return left is not None and bool((left.before or {}).keys() - set(self.keys))

    def _inherit(self, step: Departure, row: _Carried) -> None:
        assert step.moved_to is not None  # noqa: S101 - the caller saw to it
        heir = self.line(step.moved_to)
        width = len(step.order)

        def inherited(order: bytes) -> bytes:
            return step.order + order[-width:]

        cells = {c: Cell(inherited(cell.order), cell.value) for c, cell in row.cells.items()}
        for column, value in (step.before or {}).items():
            cells[column] = Cell(inherited(step.order), value)
        if cells or row.whole:
            self.touched.add(step.moved_to)
            whole = inherited(row.whole) if row.whole else NOTHING
            heir.carried.append(_Carried(inherited(step.order), cells, whole, is_inherited=True))
        values = key_values(step.moved_to) if self.keys else ()
        if self.keys and len(values) == len(self.keys):
            order = self.rule.order(at_phase(step.order, ARRIVAL))
            named = {c: Cell(order, v) for c, v in zip(self.keys, values, strict=True)}
            heir.carried.append(_Carried(order, named, NOTHING))
            self.touched.add(step.moved_to)

    def result(self) -> Resolution:
        truncated = max(self.truncates, default=NOTHING)
        states: dict[bytes, KeyState] = {}
        ties = 0
        for key in sorted(self.touched):
            line = self.lines[key]
            self._displace(key, line)
            state, tied = self._joined(key, line, truncated)
            states[key] = settle(state, truncated, self.rule)
            ties += tied
        self.problems.sort(key=lambda problem: (problem.step.order, problem.key or b""))
        kept = self.rule.truncated(truncated)
        return Resolution(states, kept, tuple(self.problems), ties)

    def _joined(self, key: bytes, line: _Timeline, truncated: bytes) -> tuple[KeyState, int]:
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


def _when(left: _Exit) -> tuple[bytes, bytes, bytes]:
    return (left.step.order, left.step.key, left.step.moved_to or b"")


def _compared(before: Mapping[str, Value], row: _Carried) -> set[str]:
    """Return the columns that both a before image and a row know."""
    return set(before) if row.whole else before.keys() & row.cells.keys()


def _agrees(before: Mapping[str, Value], row: _Carried) -> bool:
    """Say whether a before image may be of a row, as far as both are known."""
    return all(
        typed(before[column]) == typed(row.cells[column].value if column in row.cells else None)
        for column in _compared(before, row)
    )


def _same_row(one: _Carried, other: _Carried) -> bool:
    return one.cells.keys() == other.cells.keys() and all(
        typed(cell.value) == typed(other.cells[column].value) for column, cell in one.cells.items()
    )
