# SPDX-License-Identifier: Apache-2.0
"""The versions of a row: what a key held from which order to which, by all that was ever told.

The registers of a history (docs/merge-rule.md, Registers), for every order instead of the newest:
what each upsert of a key *carried*, by its order, and where lives of the key *ended*: departures,
truncates, and arrivals by a change of the key, before which another row held it. Both only grow,
so order, duplicates and batches cannot matter. From them: every upsert begins a version, which
lasts until the next upsert or end; in it a column has the value of the newest event that carries
it and is not older than the newest end before the version, else it is unknown.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from changelane.apply.added_columns import Addition, lacking
from changelane.apply.operations import Departure, Upsert
from changelane.apply.row_state import NOTHING, typed
from changelane.apply.transactions import same_transaction
from changelane.position import DEPARTURE, at_phase
from changelane.types.scalars import Value


class Told(msgspec.Struct, frozen=True):
    """What the upserts at one order carried.

    Attributes:
        values: The columns that they carry.
        whole: They set the whole row: a column that *values* does not name is NULL.
        time_us: When the source made the change, microseconds since 1970-01-01 UTC.
        arrival: The upsert, if the row came here by a change of its key.
    """

    values: Mapping[str, Value]
    whole: bool
    time_us: int | None = None
    arrival: Upsert | None = None


class End(msgspec.Struct, frozen=True):
    """Where a life of a key ended.

    Attributes:
        time_us: When the source made the change, microseconds since 1970-01-01 UTC.
        departure: The departure, when it was one: it may tell of an earlier row
            (docs/merge-rule.md, Keys inside one transaction).
    """

    time_us: int | None = None
    departure: Departure | None = None


class Past(msgspec.Struct, frozen=True):
    """All that was ever told of one key, by order."""

    told: Mapping[bytes, Told] = {}
    ends: Mapping[bytes, End] = {}


NO_PAST: Final = Past()


class Version(msgspec.Struct, frozen=True):
    """A row from one order to another.

    Attributes:
        row: The values; an unknown column is NULL.
        unknown: The columns whose values nothing told.
        order: From here on.
        until: Up to here, exclusive; empty = the version is current.
        from_us: The source's time of the event at *order*, microseconds since 1970-01-01 UTC.
            Times are shown, never compared: clocks are no order.
        until_us: The same of the event at *until*.
    """

    row: Mapping[str, Value]
    unknown: frozenset[str]
    order: bytes
    until: bytes
    from_us: int | None
    until_us: int | None

    @property
    def is_current(self) -> bool:
        """Whether nothing is known to have ended it."""
        return not self.until


def upserted(past: Past, step: Upsert, time_us: int | None) -> Past:
    """Return a past with an upsert: what it carried, by its order.

    Of two at one order the greater value wins, column by column (docs/merge-rule.md, Orders).
    """
    said = Told(step.values, step.whole, time_us, step if step.moved_from is not None else None)
    held = past.told.get(step.order)
    told = {**past.told, step.order: said if held is None else _joined(held, said)}
    return msgspec.structs.replace(past, told=told)


def departed(past: Past, step: Departure, time_us: int | None) -> Past:
    """Return a past with a departure."""
    held = past.ends.get(step.order, End())
    known = step if step.before or held.departure is None else held.departure
    end = End(later(held.time_us, time_us), known)
    return msgspec.structs.replace(past, ends={**past.ends, step.order: end})


def _joined(one: Told, other: Told) -> Told:
    values: dict[str, Value] = {}
    for column in one.values.keys() | other.values.keys():
        carried = [told.values[column] for told in (one, other) if column in told.values]
        values[column] = max(carried, key=typed)
    time_us = later(one.time_us, other.time_us)
    return Told(values, one.whole or other.whole, time_us, one.arrival or other.arrival)


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two times that may not be known."""
    return max((time for time in (one, other) if time is not None), default=None)


def versions(
    past: Past,
    columns: Collection[str],
    truncates: Mapping[bytes, int | None] | None = None,
    added: Sequence[Addition] = (),
) -> tuple[list[Version], list[Departure]]:
    """Return the versions of a key in their order, and departures that nothing decides.

    Args:
        past: All that was told of the key.
        columns: The table's columns.
        truncates: The table's truncates: order -> the source's time.
        added: The columns that came to the table without a statement.
    """
    ends, undecided = _ends(past, truncates or {})
    orders = sorted({*past.told, *ends})
    found: list[Version] = []
    held: dict[str, Value] = {}
    for order, until in zip(orders, [*orders[1:], NOTHING], strict=True):
        told = past.told.get(order)
        if told is None:
            held = {}
            continue
        if told.whole:
            older = lacking(order, {name.lower() for name in told.values}, added)
            kept = {one.column: held[one.column] for one in older if one.column in held}
            names = {one.column for one in older}
            held = {**dict.fromkeys(column for column in columns if column not in names), **kept}
        held = {**held, **told.values}
        found.append(
            Version(
                {column: held.get(column) for column in columns},
                frozenset(column for column in columns if column not in held),
                order,
                until,
                told.time_us,
                past.told[until].time_us if until in past.told else ends.get(until),
            )
        )
    return found, undecided


def _ends(
    past: Past, truncates: Mapping[bytes, int | None]
) -> tuple[dict[bytes, int | None], list[Departure]]:
    """Return order -> time of all ends, and the departures that nothing decides.

    Under deferred constraints a key may have two rows inside one transaction: the one that arrived
    and the earlier one, which the arrival ended and whose departure is still to be told. That
    departure ends nothing more (docs/merge-rule.md, Keys inside one transaction).
    """
    ends = dict(truncates)
    for order, told in past.told.items():
        if told.arrival is not None:
            ends[at_phase(order, DEPARTURE)] = told.time_us
    undecided: list[Departure] = []
    for order in sorted(past.ends):
        end = past.ends[order]
        match _names_newer(past, ends, end.departure):
            case True:
                ends[order] = later(ends.get(order), end.time_us)
            case None if end.departure is not None:
                undecided.append(end.departure)
    return ends, undecided


def _names_newer(
    past: Past, ends: Mapping[bytes, int | None], left: Departure | None
) -> bool | None:
    """Say whether a departure tells of the row that held the key last; ``None`` = undecided."""
    if left is None:
        return True
    cleared = max((order for order in ends if order < left.order), default=NOTHING)
    arrivals = [
        order
        for order, told in past.told.items()
        if told.arrival is not None
        and cleared <= order < left.order
        and same_transaction(told.arrival, left)
    ]
    if not arrivals:
        return True
    before = left.before or {}
    start = at_phase(max(arrivals), DEPARTURE)
    newer = _as_of(past, start, left.order)
    if not _agrees(before, newer):
        return False
    earlier_start = max((order for order in ends if order < start), default=NOTHING)
    earlier = _as_of(past, earlier_start, start)
    is_decided = (
        not earlier
        or not _agrees(before, earlier)
        or before.keys() & newer.keys() > before.keys() & earlier.keys()
        or {c: typed(v) for c, v in newer.items()} == {c: typed(v) for c, v in earlier.items()}
    )
    return True if is_decided else None


def _as_of(past: Past, start: bytes, end: bytes) -> dict[str, Value]:
    """Return what is known of the row just before *end*, from what was told after *start*."""
    held: dict[str, Value] = {}
    for order in sorted(past.told):
        if start < order < end:
            told = past.told[order]
            held = dict(told.values) if told.whole else {**held, **told.values}
    return held


def _agrees(before: Mapping[str, Value], row: Mapping[str, Value]) -> bool:
    return all(typed(before[c]) == typed(row[c]) for c in before.keys() & row.keys())


def tracked(told: Sequence[Version], columns: Iterable[str]) -> list[Version]:
    """Return versions of changes of some columns; changes of others show in the version they fall.

    Neighbours in one life whose tracked columns are equal are one version, with the newest values
    of the other columns. All versions have to be kept to do this for late events, too: what is
    shown is always made of all of them.
    """
    names = tuple(columns)
    found: list[Version] = []
    for one in told:
        last = found[-1] if found else None
        if last is not None and last.until == one.order and _same(last, one, names):
            found[-1] = msgspec.structs.replace(one, order=last.order, from_us=last.from_us)
        else:
            found.append(one)
    return found


def _same(one: Version, other: Version, columns: Iterable[str]) -> bool:
    return all(
        typed(one.row[c]) == typed(other.row[c]) and (c in one.unknown) == (c in other.unknown)
        for c in columns
    )
