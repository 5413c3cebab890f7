# SPDX-License-Identifier: Apache-2.0
"""The versions of a row: the values of a key between two orders, from all of its events.

A history has registers (docs/merge-rule.md, Registers) for every order: the values of each upsert
of a key, and the orders at which a life of the key ends. A life ends at a delete, a truncate, or
the arrival of another row by a key change. Both sets only grow, so order, duplicates and batches do
not matter.

Every upsert begins a version, which lasts until the next upsert or end. A column has the value of
the newest event that contains it, if that event is not older than the newest end before the
version. Otherwise the column is unknown.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from changelane.apply.added_columns import Addition, later_additions
from changelane.apply.operations import KeyDelete, Upsert
from changelane.apply.row_state import NO_ORDER, sort_key
from changelane.apply.transactions import is_one_transaction
from changelane.position import DELETE_PHASE, at_phase
from changelane.types.scalars import Value


class RowChange(msgspec.Struct, frozen=True):
    """The values of the upserts at one order.

    Attributes:
        values: The columns that the upserts contain.
        is_full_row: The upserts set the full row: a column that is not in *values* is NULL.
        time_us: When the source made the change, microseconds since 1970-01-01 UTC.
        arrival: The upsert, if a key change moved the row here.
    """

    values: Mapping[str, Value]
    is_full_row: bool
    time_us: int | None = None
    arrival: Upsert | None = None


class LifeEnd(msgspec.Struct, frozen=True):
    """The end of a life of a key.

    Attributes:
        time_us: When the source made the change, microseconds since 1970-01-01 UTC.
        key_delete: The delete, if there was one; its row may be an earlier one
            (docs/merge-rule.md, Keys inside one transaction).
    """

    time_us: int | None = None
    key_delete: KeyDelete | None = None


class RowHistory(msgspec.Struct, frozen=True):
    """All known changes and ends of one key, by order."""

    changes: Mapping[bytes, RowChange] = {}
    ends: Mapping[bytes, LifeEnd] = {}


NO_HISTORY: Final = RowHistory()


class Version(msgspec.Struct, frozen=True):
    """A row from one order to another.

    Attributes:
        row: The values; an unknown column is NULL.
        unknown: The columns with an unknown value.
        order: The first order.
        end_order: The end (exclusive); empty if the version is current.
        from_us: The source's time of the event at *order*, microseconds since 1970-01-01 UTC.
            Times are never compared: a clock time is no order.
        until_us: The source's time of the event at *end_order*.
    """

    row: Mapping[str, Value]
    unknown: frozenset[str]
    order: bytes
    end_order: bytes
    from_us: int | None
    until_us: int | None

    @property
    def is_current(self) -> bool:
        """Whether no known event ends the version."""
        return not self.end_order


def with_upsert(row_history: RowHistory, upsert: Upsert, time_us: int | None) -> RowHistory:
    """Return a history with the values of an upsert at its order.

    Of two upserts at one order the greater value wins, column by column (docs/merge-rule.md,
    Orders).
    """
    row_change = RowChange(
        upsert.values,
        upsert.is_full_row,
        time_us,
        upsert if upsert.moved_from is not None else None,
    )
    known_change = row_history.changes.get(upsert.order)
    changes = {
        **row_history.changes,
        upsert.order: row_change
        if known_change is None
        else _joined_change(known_change, row_change),
    }
    return msgspec.structs.replace(row_history, changes=changes)


def with_delete(row_history: RowHistory, key_delete: KeyDelete, time_us: int | None) -> RowHistory:
    """Return a history with a key delete."""
    known_end = row_history.ends.get(key_delete.order, LifeEnd())
    newest_delete = (
        key_delete if key_delete.before or known_end.key_delete is None else known_end.key_delete
    )
    end = LifeEnd(later_time(known_end.time_us, time_us), newest_delete)
    return msgspec.structs.replace(row_history, ends={**row_history.ends, key_delete.order: end})


def _joined_change(first: RowChange, second: RowChange) -> RowChange:
    values: dict[str, Value] = {}
    for column in first.values.keys() | second.values.keys():
        versions_of_column = [
            row_change.values[column]
            for row_change in (first, second)
            if column in row_change.values
        ]
        values[column] = max(versions_of_column, key=sort_key)
    time_us = later_time(first.time_us, second.time_us)
    return RowChange(
        values, first.is_full_row or second.is_full_row, time_us, first.arrival or second.arrival
    )


def later_time(first: int | None, second: int | None) -> int | None:
    """Return the later of two times; ``None`` is an unknown time."""
    return max((time for time in (first, second) if time is not None), default=None)


def versions(
    row_history: RowHistory,
    columns: Collection[str],
    truncates: Mapping[bytes, int | None] | None = None,
    added: Sequence[Addition] = (),
) -> tuple[list[Version], list[KeyDelete]]:
    """Return the versions of a key in order, and the deletes that do not identify their row.

    Args:
        row_history: All changes of the key.
        columns: The table's columns.
        truncates: The table's truncates: order -> the source's time.
        added: The columns that were added to the table without a statement.
    """
    ends, undecided = _ends(row_history, truncates or {})
    orders = sorted({*row_history.changes, *ends})
    found_versions: list[Version] = []
    values: dict[str, Value] = {}
    for order, next_order in zip(orders, [*orders[1:], NO_ORDER], strict=True):
        row_change = row_history.changes.get(order)
        if row_change is None:
            values = {}
            continue
        if row_change.is_full_row:
            older = later_additions(order, {name.lower() for name in row_change.values}, added)
            added_values = {
                addition.column: values[addition.column]
                for addition in older
                if addition.column in values
            }
            names = {addition.column for addition in older}
            values = {
                **dict.fromkeys(column for column in columns if column not in names),
                **added_values,
            }
        values = {**values, **row_change.values}
        found_versions.append(
            Version(
                {column: values.get(column) for column in columns},
                frozenset(column for column in columns if column not in values),
                order,
                next_order,
                row_change.time_us,
                row_history.changes[next_order].time_us
                if next_order in row_history.changes
                else ends.get(next_order),
            )
        )
    return found_versions, undecided


def _ends(
    row_history: RowHistory, truncates: Mapping[bytes, int | None]
) -> tuple[dict[bytes, int | None], list[KeyDelete]]:
    """Return order -> time of all ends, and the deletes that do not identify their row.

    Under deferred constraints a key may have two rows inside a transaction: the earlier row, and
    the row that arrived. The arrival ended the life of the earlier row, so its later delete has no
    effect (docs/merge-rule.md, Keys inside one transaction).
    """
    ends = dict(truncates)
    for order, row_change in row_history.changes.items():
        if row_change.arrival is not None:
            ends[at_phase(order, DELETE_PHASE)] = row_change.time_us
    undecided: list[KeyDelete] = []
    for order in sorted(row_history.ends):
        end = row_history.ends[order]
        match _is_of_newest_row(row_history, ends, end.key_delete):
            case True:
                ends[order] = later_time(ends.get(order), end.time_us)
            case None if end.key_delete is not None:
                undecided.append(end.key_delete)
    return ends, undecided


def _is_of_newest_row(
    row_history: RowHistory, ends: Mapping[bytes, int | None], key_delete: KeyDelete | None
) -> bool | None:
    """Whether a delete removes the row that had the key last; ``None`` if undecidable."""
    if key_delete is None:
        return True
    cleared = max((order for order in ends if order < key_delete.order), default=NO_ORDER)
    arrivals = [
        order
        for order, row_change in row_history.changes.items()
        if row_change.arrival is not None
        and cleared <= order < key_delete.order
        and is_one_transaction(row_change.arrival, key_delete)
    ]
    if not arrivals:
        return True
    before = key_delete.before or {}
    start = at_phase(max(arrivals), DELETE_PHASE)
    newer = _row_as_of(row_history, start, key_delete.order)
    if not _is_consistent(before, newer):
        return False
    earlier_start = max((order for order in ends if order < start), default=NO_ORDER)
    earlier = _row_as_of(row_history, earlier_start, start)
    is_decided = (
        not earlier
        or not _is_consistent(before, earlier)
        or before.keys() & newer.keys() > before.keys() & earlier.keys()
        or {c: sort_key(v) for c, v in newer.items()}
        == {c: sort_key(v) for c, v in earlier.items()}
    )
    return True if is_decided else None


def _row_as_of(row_history: RowHistory, start: bytes, end: bytes) -> dict[str, Value]:
    """Return the known values of the row just before *end*, from changes after *start*."""
    values: dict[str, Value] = {}
    for order in sorted(row_history.changes):
        if start < order < end:
            row_change = row_history.changes[order]
            values = (
                dict(row_change.values)
                if row_change.is_full_row
                else {**values, **row_change.values}
            )
    return values


def _is_consistent(before: Mapping[str, Value], row: Mapping[str, Value]) -> bool:
    return all(sort_key(before[c]) == sort_key(row[c]) for c in before.keys() & row.keys())


def versions_of_tracked(all_versions: Sequence[Version], columns: Iterable[str]) -> list[Version]:
    """Merge versions that differ only in columns that are not tracked.

    Adjacent versions of one life with equal tracked columns become one version, with the newest
    values of the other columns. The result must be computed from all versions, so that late events
    have their effect.
    """
    names = tuple(columns)
    tracked_versions: list[Version] = []
    for version in all_versions:
        last = tracked_versions[-1] if tracked_versions else None
        if (
            last is not None
            and last.end_order == version.order
            and _is_same_version(last, version, names)
        ):
            tracked_versions[-1] = msgspec.structs.replace(
                version, order=last.order, from_us=last.from_us
            )
        else:
            tracked_versions.append(version)
    return tracked_versions


def _is_same_version(first: Version, second: Version, columns: Iterable[str]) -> bool:
    return all(
        sort_key(first.row[c]) == sort_key(second.row[c])
        and (c in first.unknown) == (c in second.unknown)
        for c in columns
    )
