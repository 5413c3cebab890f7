# SPDX-License-Identifier: Apache-2.0
"""Tables in memory by ``docs/merge-rule.md``: the oracle of all other tables."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from changelane.apply import (
    NO_ORDER,
    RULE,
    TOO_LATE,
    UNORDERED,
    KeyState,
    NoKeyError,
    RowOperation,
    Rule,
    TableTruncate,
    Upsert,
    affected_keys,
    canonical,
    compact,
    is_live,
    last_known_states,
    operations_of,
    pack_orders,
    resolve,
    row_of,
)
from changelane.apply.added_columns import Addition, ColumnHistory, later_additions, schemas_of
from changelane.apply.deduplication import ordinal_of
from changelane.apply.row_state import ColumnVersion
from changelane.errors import ApplyError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Op, Truncate
from changelane.position import BY_PARTITION, Position
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, option_for_table
from changelane.testing.reference.table import Row
from changelane.types import UNAVAILABLE, Value

DELETED: Final = "_changelane_deleted"
"""The column that marks deleted rows, with soft deletes."""


class Deletes(StrEnum):
    """The effect of a delete."""

    HARD = "hard"
    SOFT = "soft"


class Keyless(StrEnum):
    """The handling of a table without a key.

    ``append``: each insert or snapshot row is a row of its own. A repeated event adds no row: it is
    identified by its order, content and ordinal (:mod:`changelane.apply.deduplication`), or by its
    place in the topic. Without both, it is added each time. Updates and deletes identify their row
    only by its values, so they are quarantined.

    ``row``: the complete row is the key, so equal rows are one row, and one delete deletes it. An
    update needs a complete before image.
    """

    APPEND = "append"
    ROW = "row"


class Refused(NamedTuple):
    """A rejected event, with its reason."""

    table: TableId
    code: ReasonCode
    event: ChangeEvent


class StoredRow(NamedTuple):
    """A row in its stored form, with base order and exceptions."""

    row: Row
    order: bytes
    columns: Mapping[str, bytes] | None


class _Table(msgspec.Struct):
    states: dict[bytes, KeyState] = {}
    columns: dict[str, None] = {}
    keys: tuple[str, ...] = ()
    truncated: bytes = NO_ORDER
    horizon: bytes = NO_ORDER
    ghosts: dict[bytes, KeyState] = {}
    bases: dict[bytes, bytes] = {}
    """The newest upsert of each key with all columns of its table."""
    source: ColumnHistory = ColumnHistory()
    """The columns of the source, and the columns that were added to existing rows."""
    high: bytes = NO_ORDER
    """The newest upsert."""
    taken: bytes = NO_ORDER
    """The newest operation of any kind, up to the previous batch."""
    places: set[bytes] = set()
    """The partitions of the orders, if orders are offsets."""
    defaults: dict[str, Value] = {}
    """The values of added columns in older rows, if the schema declares them."""


class MemoryTables:
    """Tables in memory, by the names of their sources.

    Args:
        keys: Table name -> key columns, instead of the keys of the events.
        deletes: ``soft`` keeps deleted rows with their last known values, marked in
            ``_changelane_deleted``.
        tables_without_key: The handling of tables without a key.
        epoch: The epoch of the orders.
        rule: The decisions of the rule; only tests replace them.
        statements: The tables with DDL statements, which determine the values of new columns.
    """

    def __init__(
        self,
        *,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        deletes: Deletes | str = Deletes.HARD,
        tables_without_key: Keyless | str = Keyless.APPEND,
        epoch: int = 0,
        rule: Rule = RULE,
        statements: Collection[TableId] = (),
    ) -> None:
        self._keys = dict(keys or {})
        self._statements = frozenset(statements)
        self._deletes = Deletes(deletes)
        self._keyless = Keyless(tables_without_key)
        self._epoch = epoch
        self._rule = rule
        self._tables: dict[TableId, _Table] = {}
        self._counts: Counter[str] = Counter()
        self.quarantine: list[Refused] = []

    def apply(
        self, events: Iterable[ChangeEvent], *, positions: Sequence[Position | None] = ()
    ) -> None:
        """Apply one batch.

        Args:
            events: Events of any tables.
            positions: The position of each event in its topic, for events without a position or
                without another identity.
        """
        changes: dict[TableId, list[tuple[RowOperation, ChangeEvent]]] = {}
        for index, event in enumerate(events):
            fallback = positions[index] if index < len(positions) else None
            table = _table_of(event)
            if table is None:
                continue
            try:
                event_steps = self._steps(event, fallback)
            except ApplyError as error:
                self.quarantine.append(Refused(table, error.code, event))
                continue
            changes.setdefault(table, []).extend((step, event) for step in event_steps)
        for table, batch in changes.items():
            self._apply(table, batch)

    def rows(self, table: TableId) -> Sequence[Row]:
        """Return the rows of a table, in the order of their canonical keys."""
        return [row for _, row in sorted(self.keyed(table).items())]

    def keyed(self, table: TableId) -> Mapping[bytes, Row]:
        """Return the rows of a table by their canonical key."""
        stored_table = self._tables.get(table) or _Table()
        rows: dict[bytes, Row] = {}
        for key, state in stored_table.states.items():
            row = row_of(
                state, stored_table.columns, stored_table.truncated, self._rule_of(stored_table)
            )
            if self._deletes is Deletes.HARD:
                if row is not None:
                    rows[key] = row[0]
            elif row is not None:
                rows[key] = {**row[0], DELETED: False}
            elif (ghost := stored_table.ghosts.get(key)) is not None:
                rows[key] = {
                    **{c: ghost.cell(c).value for c in stored_table.columns},
                    DELETED: True,
                }
        return rows

    def incomplete(self, table: TableId) -> Mapping[bytes, frozenset[str]]:
        """Return canonical key -> unknown columns of the row."""
        stored_table = self._tables.get(table) or _Table()
        unknown_columns: dict[bytes, frozenset[str]] = {}
        for key, state in stored_table.states.items():
            row = row_of(
                state, stored_table.columns, stored_table.truncated, self._rule_of(stored_table)
            )
            if row is not None and row[1]:
                unknown_columns[key] = row[1]
        return unknown_columns

    def stored(self, table: TableId) -> Mapping[bytes, StoredRow]:
        """Return the rows in their stored form (docs/merge-rule.md, Storage)."""
        stored_table = self._tables.get(table) or _Table()
        rows: dict[bytes, StoredRow] = {}
        for key, row in self.keyed(table).items():
            state = stored_table.ghosts[key] if row.get(DELETED) else stored_table.states[key]
            added = stored_table.source.added
            order, columns = pack_orders(
                {c: state.cell(c, added).order for c in stored_table.columns}
            )
            rows[key] = StoredRow(row, order, columns)
        return rows

    def states(self, table: TableId) -> Mapping[bytes, KeyState]:
        """Return the registers of every key."""
        return dict((self._tables.get(table) or _Table()).states)

    def additions(self, table: TableId) -> Sequence[Addition]:
        """Return the columns that were added to a table without a statement."""
        return (self._tables.get(table) or _Table()).source.added

    @property
    def counts(self) -> Mapping[str, int]:
        """``ties``, ``too_late``, ``conflicts`` so far, and ``incomplete`` rows now.

        A conflict is an event with an order that is not comparable with those of its key: another
        domain of positions, or another partition if orders are offsets.
        """
        now = sum(len(self.incomplete(table)) for table in self._tables)
        return {
            **{name: self._counts[name] for name in ("ties", TOO_LATE, "conflicts")},
            "incomplete": now,
        }

    def _rule_of(self, stored_table: _Table) -> Rule:
        return (
            self._rule.with_additions(stored_table.source.added)
            if stored_table.source.added
            else self._rule
        )

    def purge(self, table: TableId, horizon: bytes) -> None:
        """Purge departures up to *horizon*; then older upserts of missing rows are rejected.

        Older upserts of rows that lack columns and have no value so old are rejected, too. The
        departure of an existing row stays if the row has unknown columns, or may get one with the
        next column of the table: an event from before the departure must not fill such a column.
        """
        stored_table = self._tables.setdefault(table, _Table())
        stored_table.horizon = max(stored_table.horizon, horizon)
        wanting = self.incomplete(table)
        for key, old_state in list(stored_table.states.items()):
            is_old = all(within.last <= horizon for within in old_state.transactions)
            transactions = () if is_old else old_state.transactions
            state = stored_table.states[key] = msgspec.structs.replace(
                old_state, transactions=transactions
            )
            if not NO_ORDER < state.deleted <= horizon or key in wanting:
                continue
            if is_live(state, stored_table.truncated, self._rule):
                if stored_table.bases.get(key, NO_ORDER) <= max(
                    state.deleted, stored_table.truncated
                ):
                    continue
                stored_table.states[key] = msgspec.structs.replace(
                    state, deleted=NO_ORDER, moved_to=None
                )
            elif self._deletes is Deletes.HARD:
                del stored_table.states[key]
            # a marked row keeps its departure

    def _add(self, stored_table: _Table, batch: Sequence[tuple[RowOperation, ChangeEvent]]) -> None:
        """Add the columns that a batch contains without a statement."""
        upserts = [(event, step.order) for step, event in batch if isinstance(step, Upsert)]
        listings = schemas_of(upserts)
        orders = [order for _, order in upserts]
        stored_table.high = max(stored_table.high, *orders, NO_ORDER)
        stored_table.places.update(order[-9:-1] for order in orders if order[1] in BY_PARTITION)
        crossing = stored_table.high if len(stored_table.places) > 1 else NO_ORDER
        before = stored_table.source
        if before.has_new(listings):
            before = before.reaching(stored_table.taken)
        stored_table.source = before.after(listings, crossing)
        stored_table.taken = max([stored_table.taken, *(step.order for step, _ in batch)])
        for addition in stored_table.source.added[len(before.added) :]:
            if not addition.is_unknown:
                stored_table.defaults[addition.column] = _declared_default(addition, upserts)
                stored_table.states = {
                    key: _with_default(s, addition, stored_table)
                    for key, s in stored_table.states.items()
                }

    def _columns(self, event: DataChange) -> tuple[str, ...] | None:
        return option_for_table(self._keys, event.table) or (
            None if event.key is None else event.key.columns
        )

    def _steps(self, event: ChangeEvent, fallback: Position | None) -> tuple[RowOperation, ...]:
        change = event.change if isinstance(event, HalfUpdate) else event
        if not isinstance(change, DataChange):
            return operations_of(event, epoch=self._epoch, fallback=fallback)
        stored_table = self._tables.setdefault(change.table, _Table())
        columns = self._columns(change)
        names = tuple(stored_table.columns if change.schema is None else change.schema.by_name)
        names += tuple(
            c for c in {**(change.before or {}), **(change.after or {})} if c not in names
        )
        if columns is None and self._keyless is Keyless.ROW:
            columns = names
            if change.op is Op.UPDATE and (
                change.before is None
                or any(change.before.get(name, UNAVAILABLE) is UNAVAILABLE for name in names)
            ):
                raise NoKeyError("the update of a table without a key has no complete before image")
        # half updates identify their row only by its values, too
        if columns is None and (change is not event or change.op not in {Op.CREATE, Op.READ}):
            raise NoKeyError("the table has no key, so the row is unknown")
        event_steps = operations_of(event, keys=columns, epoch=self._epoch, fallback=fallback)
        stored_table.columns.update(dict.fromkeys(names))
        if columns is None:
            return tuple(
                msgspec.structs.replace(step, key=self._added(step, change, fallback))
                for step in event_steps
                if isinstance(step, Upsert)
            )
        stored_table.keys = columns
        return event_steps

    def _added(self, step: Upsert, event: DataChange, fallback: Position | None) -> bytes:
        """Return the identity of a row in a table without a key."""
        is_snapshot = event.op is Op.READ or event.source.snapshot is not None
        position = event.position or fallback
        assert position is not None  # noqa: S101 - the operation has an order
        ordinal = ordinal_of(position, event.transaction, is_snapshot=is_snapshot)
        place: list[Value] = [event.op.value, ordinal]
        if ordinal is None and fallback is not None:
            place.append(fallback.key())
        elif ordinal is None:
            self._counts["added"] += 1
            place.append(self._counts["added"])
        return b"@" + step.order + canonical([*place, dict(step.values)]).encode()

    def _apply(self, table: TableId, batch: Sequence[tuple[RowOperation, ChangeEvent]]) -> None:
        stored_table = self._tables.setdefault(table, _Table())
        if table not in self._statements:
            self._add(stored_table, batch)
            batch = [(_with_defaults(stored_table, step), event) for step, event in batch]
        batch_steps = [step for step, _ in batch]
        states = {key: stored_table.states[key] for key in _reached(stored_table, batch_steps)}
        resolution = resolve(
            states,
            batch_steps,
            truncated=stored_table.truncated,
            tombstone_watermark=stored_table.horizon,
            complete=(
                states.keys() - self.incomplete(table).keys()
                if stored_table.horizon
                else frozenset()
            ),
            keys=stored_table.keys,
            rule=self._rule_of(stored_table),
        )
        for step, event in batch:
            if (
                isinstance(step, Upsert)
                and step.key is not None
                and _contains_all_columns(step, event)
            ):
                stored_table.bases[step.key] = max(
                    stored_table.bases.get(step.key, NO_ORDER), step.order
                )
        rows = {**stored_table.states, **stored_table.ghosts}
        stored_table.states.update(resolution.states)
        if any(isinstance(step, TableTruncate) for step in batch_steps):
            truncated = max(
                stored_table.truncated,
                *(s.order for s in batch_steps if isinstance(s, TableTruncate)),
            )
            stored_table.states = {
                k: compact(s, truncated, self._rule) for k, s in stored_table.states.items()
            }
        stored_table.truncated = resolution.truncated
        if self._deletes is Deletes.SOFT:
            refused = {id(problem.operation) for problem in resolution.rejections}
            dead_keys = [
                k
                for k, s in stored_table.states.items()
                if not is_live(s, stored_table.truncated, self._rule)
            ]
            accepted_steps = (step for step in batch_steps if id(step) not in refused)
            stored_table.ghosts = last_known_states(rows, accepted_steps, dead_keys)
        self._counts["ties"] += resolution.tie_count
        origin = {id(step): event for step, event in batch}
        for problem in resolution.rejections:
            self._counts["conflicts" if problem.code == UNORDERED else problem.code] += 1
            event = origin.get(id(problem.operation), batch[0][1])
            self.quarantine.append(Refused(table, problem.code, event))


def _declared_default(added: Addition, upserts: Iterable[tuple[ChangeEvent, bytes]]) -> Value:
    """Return the default of a new column, from the schema of its first event."""
    for event, order in upserts:
        change = event.change if isinstance(event, HalfUpdate) else event
        if order == added.order and isinstance(change, DataChange) and change.schema is not None:
            return change.schema.by_name[added.column].default
    raise ValueError(added.column)


def _with_default(state: KeyState, added: Addition, stored_table: _Table) -> KeyState:
    """Return an older row with the declared default of a new column."""
    if not later_additions(state.full_row_order, state.cells, [added]) or not state.full_row_order:
        return state
    cell = ColumnVersion(state.full_row_order, stored_table.defaults[added.column])
    return msgspec.structs.replace(state, cells={**state.cells, added.column: cell})


def _with_defaults(stored_table: _Table, step: RowOperation) -> RowOperation:
    """Return the operation of a full row with the defaults of later columns."""
    if not isinstance(step, Upsert) or not step.is_full_row:
        return step
    names = {name.lower() for name in step.values}
    known_values = {
        addition.column: stored_table.defaults[addition.column]
        for addition in later_additions(step.order, names, stored_table.source.added)
        if not addition.is_unknown
    }
    return (
        msgspec.structs.replace(step, values={**step.values, **known_values})
        if known_values
        else step
    )


def _contains_all_columns(step: Upsert, event: ChangeEvent) -> bool:
    """Whether an event contains all columns of its table."""
    change = event.change if isinstance(event, HalfUpdate) else event
    return step.is_full_row or (isinstance(change, DataChange) and change.schema is not None)


def _table_of(event: ChangeEvent) -> TableId | None:
    match event:
        case DataChange() | Truncate():
            return event.table
        case HalfUpdate(change):
            return change.table
        case _:
            return None


def _reached(stored_table: _Table, steps: Sequence[RowOperation]) -> Iterable[bytes]:
    return (key for key in affected_keys(stored_table.states, steps) if key in stored_table.states)
