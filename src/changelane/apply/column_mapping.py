# SPDX-License-Identifier: Apache-2.0
"""Maps the columns of events to columns of a lake table, over all renames and drops.

A name may denote several columns over time: a column is renamed or dropped, and another column
gets its name. A column is identified by a *field id* that survives renames, as in Iceberg. An event
contains the names at its order; it updates the registers of their field ids.

The mapping depends only on the schema history (:mod:`changelane.apply.schema_history`) and on
orders, so replays, late events and batches do not change it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from changelane.apply.schema_history import Backfill, ColumnAdded, TableAltered


class FieldId(NamedTuple):
    """The identity of a column: its first name, and the number of the change that added it.

    Number 0 denotes the state before the first change.
    """

    name: str
    since: int = 0


class _NameChange(NamedTuple):
    """The effect of one schema change on names; all old names are those before the change."""

    order: bytes
    ended: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    added: tuple[str, ...]


class FieldIdTimeline:
    """The field id of each name in each interval between two schema changes.

    A name that no change contains is one field id over the complete log.

    Args:
        changes: The changes, in the order of the log.
    """

    def __init__(self, changes: Sequence[_NameChange]) -> None:
        self._orders = [change.order for change in changes]
        self.states: list[dict[str, FieldId | None]] = [_initial_names(changes)]
        for number, change in enumerate(changes, 1):
            self.states.append(_names_after(self.states[-1], change, number))

    def interval_of(self, order: bytes) -> int:
        """Return the number of changes before an order."""
        return bisect_left(self._orders, order)

    def field_id(self, name: str, interval: int) -> FieldId | None:
        """Return the field id of a name in an interval; ``None`` if no column has the name."""
        return self.states[interval].get(name, FieldId(name))

    def first_interval_with(self, names: Iterable[str], interval: int) -> int:
        """Return the first interval from *interval* on in which all names exist.

        A snapshot that sorts below the stream may contain the schema of a later time. Without such
        an interval, the result is *interval* itself.
        """
        column_names = tuple(names)
        for later in range(interval, len(self.states)):
            if all(self.field_id(name, later) is not None for name in column_names):
                return later
        return interval


def _initial_names(changes: Sequence[_NameChange]) -> dict[str, FieldId | None]:
    """Return the names before all changes: the names that the changes rename or drop."""
    names: dict[str, FieldId | None] = {}
    for change in changes:
        for name in (*change.ended, *(old for old, _ in change.renamed)):
            names.setdefault(name, FieldId(name))
        for name in (*(new for _, new in change.renamed), *change.added):
            names.setdefault(name, None)
    return names


def _names_after(
    before: Mapping[str, FieldId | None], change: _NameChange, number: int
) -> dict[str, FieldId | None]:
    names = dict(before)
    for name in (*change.ended, *(old for old, _ in change.renamed)):
        names[name] = None
    for old, new in change.renamed:
        if (field_id := before.get(old, FieldId(old))) is not None:
            names[new] = field_id
    for name in change.added:
        names[name] = FieldId(name, number)
    return names


class ColumnBackfill(NamedTuple):
    """The value of an added column in older events.

    Attributes:
        column: The column of the table.
        added: The addition by a DDL statement.
        order: The order of the statement.
    """

    column: str
    added: ColumnAdded
    order: bytes


class EventColumns(NamedTuple):
    """The mapping of events with one schema and time to the table.

    Attributes:
        columns: Name in the event -> column of the table; ``None`` if the column is dropped.
        backfills: The values of columns that were added after the event.
    """

    columns: Mapping[str, str | None]
    backfills: tuple[ColumnBackfill, ...]


class ColumnChanges(NamedTuple):
    """The changes of a lake table's columns that one schema change requires.

    Attributes:
        renamed: Old and new names, to be applied one by one after the drops.
        dropped: The columns to drop first.
    """

    order: bytes
    part: int
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


class ColumnMapping:
    """The columns of one table over its log.

    Names that differ only by case are equal, as in the tables of the lake.

    Args:
        entries: The schema changes of the table, each once, in the order of the log.
        keep: A dropped column stays in the table; it is renamed if a new column needs its name.
        followed_count: The number of changes that the table has applied; ``None`` = all.
    """

    def __init__(
        self,
        entries: Sequence[TableAltered],
        *,
        keep: bool = True,
        followed_count: int | None = None,
    ) -> None:
        self.entries = entries
        self._keep = keep
        self._followed_count = len(entries) if followed_count is None else followed_count
        self._spellings: dict[str, str] = {}
        changes = [self._change(entry, before) for before, entry in enumerate(entries)]
        self.names = FieldIdTimeline(changes)
        self.changes: list[ColumnChanges] = []
        self._names_in_lake = self._lake_names()

    def _change(self, entry: TableAltered, before: int) -> _NameChange:
        added_names = [
            column.name for column in entry.added if self._exists_before(column, before) is False
        ]
        for name in (*added_names, *(new for _, new in entry.renamed)):
            self._spellings.setdefault(name.lower(), name)
        # names are compared without case, so a change of case is no rename
        renamed = tuple((old, new) for old, new in map(_lower, entry.renamed) if old != new)
        return _NameChange(entry.order, _lower(entry.dropped), renamed, _lower(added_names))

    def _exists_before(self, added: ColumnAdded, before: int) -> bool | None:
        """Return whether a column exists before its addition; ``None`` if no change shows it."""
        if not added.may_exist:
            return False
        exists: bool | None = None
        for entry in self.entries[:before]:
            if added.name.lower() in _lower((*entry.dropped, *(old for old, _ in entry.renamed))):
                exists = False
            if added.name.lower() in _lower(
                (*(new for _, new in entry.renamed), *(column.name for column in entry.added))
            ):
                exists = True
        return exists

    def _lake_names(self) -> dict[FieldId, str | None]:
        """Return the lake column of every field id in the history; collect ``changes``."""
        names_by_id: dict[FieldId, str | None] = {
            field_id: field_id.name
            for field_id in self.names.states[0].values()
            if field_id is not None
        }
        for number, entry in enumerate(self.entries[: self._followed_count], 1):
            before, after = self.names.states[number - 1], self.names.states[number]
            renamed: list[tuple[str, str]] = []
            dropped: list[str] = []
            current_ids = {field_id for field_id in after.values() if field_id is not None}
            for name, field_id in before.items():
                if field_id is not None and field_id not in current_ids and not self._keep:
                    dropped.append(self.spelling_of(names_by_id.get(field_id) or name))
                    names_by_id[field_id] = None
            new_names = {
                name: field_id
                for name, field_id in after.items()
                if field_id is not None and before.get(name) != field_id
            }
            self._rename_kept_columns(names_by_id, new_names, number, renamed)
            # columns that swap their names need temporary names
            final_renames: list[tuple[str, str]] = []
            for name, field_id in new_names.items():
                placed_name = names_by_id.get(field_id)
                if placed_name is None or placed_name == name:
                    names_by_id[field_id] = name
                    continue
                if any(
                    other_id != field_id and other_name == name
                    for other_id, other_name in names_by_id.items()
                ):
                    temporary_name = f"{name}__turn_{number}"
                    renamed.append((self.spelling_of(placed_name), temporary_name))
                    final_renames.append((temporary_name, self.spelling_of(name)))
                else:
                    renamed.append((self.spelling_of(placed_name), self.spelling_of(name)))
                names_by_id[field_id] = name
            self.changes.append(
                ColumnChanges(entry.order, entry.part, (*renamed, *final_renames), tuple(dropped))
            )
        return names_by_id

    def _rename_kept_columns(
        self,
        names_by_id: dict[FieldId, str | None],
        new_names: Mapping[str, FieldId],
        number: int,
        renamed: list[tuple[str, str]],
    ) -> None:
        """Rename kept dropped columns if a new column needs their name."""
        current_ids = {
            field_id for field_id in self.names.states[number].values() if field_id is not None
        }
        for field_id, placed_name in names_by_id.items():
            if placed_name is not None and placed_name in new_names and field_id not in current_ids:
                temporary_name = f"{placed_name}__dropped_{number}"
                renamed.append((self.spelling_of(placed_name), temporary_name))
                names_by_id[field_id] = temporary_name

    def spelling_of(self, name: str) -> str:
        """Return a lower-case name in the spelling of the statements."""
        return self._spellings.get(name, name)

    def column(self, field_id: FieldId) -> str | None:
        """Return the lake column of a field id, in lower case; ``None`` if it is dropped."""
        if field_id in self._names_in_lake:
            return self._names_in_lake[field_id]
        # a change that the table has not applied may add a name that another column still has
        return None if field_id.name in self._names_in_lake.values() else field_id.name

    def event_columns(self, names: Iterable[str], order: bytes) -> EventColumns:
        """Return the mapping for events with these columns at an order."""
        lower_names = {name: name.lower() for name in names}
        interval = self.names.first_interval_with(
            lower_names.values(), self.names.interval_of(order)
        )
        columns: dict[str, str | None] = {}
        for name, lower in lower_names.items():
            field_id = self.names.field_id(lower, interval)
            if field_id is None:
                field_id = self._last_field_id(lower, interval)
            columns[name] = self.column(FieldId(lower, -1) if field_id is None else field_id)
        return EventColumns(columns, tuple(self._backfills(interval)))

    def _last_field_id(self, name: str, interval: int) -> FieldId | None:
        """Return the last field id of an unused name; kept columns still get values."""
        if not self._keep:
            return None
        for state in reversed(self.names.states[:interval]):
            if (field_id := state.get(name)) is not None:
                return field_id
        return None

    def _backfills(self, interval: int) -> Iterable[ColumnBackfill]:
        for number, entry in enumerate(self.entries[interval:], interval + 1):
            for added in entry.added:
                exists = self._exists_before(added, number - 1)
                if exists or added.fill is Backfill.NULL:
                    continue
                name = added.name.lower()
                field_id = self.names.field_id(name, number) or FieldId(name)
                is_current = exists is None or field_id.since == number
                if is_current and (column := self.column(field_id)) is not None:
                    yield ColumnBackfill(column, added, entry.order)

    def uncertain_additions(self, number: int) -> dict[str, set[str | None]]:
        """Return the columns that a change adds if they do not exist, if no change shows that.

        Args:
            number: The index of the change in :attr:`entries`.

        Returns:
            The names in the statement, and the columns of the table with it, before and after all
            changes.
        """
        additions: dict[str, set[str | None]] = {}
        for added in self.entries[number].added:
            if self._exists_before(added, number) is None:
                name = added.name.lower()
                field_id = self.names.field_id(name, number + 1) or FieldId(name)
                additions[added.name] = {name, self.column(field_id)}
        return additions

    @property
    def backfills(self) -> tuple[ColumnBackfill, ...]:
        """The values of older rows in all columns that were added with a value."""
        return tuple(self._backfills(0))

    def change_orders(self) -> list[bytes]:
        """Return the orders at which names change."""
        return sorted({entry.order for entry in self.entries})
