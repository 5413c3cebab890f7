# SPDX-License-Identifier: Apache-2.0
"""A list of pure transforms as one function of an event of any kind.

>>> from changelane.event import DataChange, Op
>>> from changelane.transforms.project_rename import Rename
>>> chain = Chain([Rename(columns={"nr": "id"})])
>>> chain(DataChange(Op.CREATE, TableId(name="t"), after={"nr": 1})).after
{'id': 1}
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from changelane.apply.schema_history import table_of_shadow
from changelane.errors import TransformError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Control,
    DataChange,
    HalfUpdate,
    Key,
    LogicalMessage,
    Op,
    SchemaChange,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.transforms import ddl as statements
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.mask import Mask, fingerprint
from changelane.transforms.route import Route
from changelane.transforms.table_plan import (
    ChangedColumns,
    TableTarget,
    TransformPlan,
    refuse_missing,
)
from changelane.transforms.transform import Transform
from changelane.types import UNKNOWN

_OPERATIONS: Final = {
    Op.CREATE: "create",
    Op.UPDATE: "update",
    Op.DELETE: "delete",
    Op.READ: "read",
}
_MAX_CACHED: Final = 10_000
_replace = msgspec.structs.replace

# Debezium's field of a transaction marker: the number of events per table.
_COLLECTIONS: Final = "data_collections"


def server_of_feed(feed: str) -> str:
    """Return the server in the id of a source (:meth:`Chain.feed`).

    >>> server_of_feed("shop"), server_of_feed('["shop","shop.public.orders"]')
    ('shop', 'shop')
    """
    return str(msgspec.json.decode(feed)[0] or "") if feed.startswith("[") else feed


class Chain:
    """Transforms in their order. A chain caches the plans of tables, never rows.

    Args:
        transforms: The transforms.
        sees_all: Whether one chain processes the complete stream. Such a chain rejects two tables
            with one target, unless ``shards`` allows that.
        skips_shadows: Whether shadow tables of online schema changes belong to their tables: the
            chain leaves out their rows, and transforms their statements as those of the table.
    """

    def __init__(
        self,
        transforms: Sequence[Transform],
        *,
        sees_all: bool = False,
        skips_shadows: bool = False,
    ) -> None:
        self.transforms = tuple(transforms)
        self._sees_all = sees_all
        self._skips_shadows = skips_shadows
        self._targets: dict[TableId, TableTarget] = {}
        self._plans: dict[tuple[TableId, TableSchema | None, Key | None], TransformPlan] = {}
        self._last: tuple[object, object, object, TransformPlan] | None = None
        self._sources: dict[TableId, TableTarget] = {}
        self._topics: dict[TableId, str] = {}
        self._feeds: dict[int, TableTarget] = {}
        self._merged_tables: set[TableId] = set()
        self._changed_columns: dict[TableId, ChangedColumns] = {}
        masks = [transform for transform in self.transforms if isinstance(transform, Mask)]
        self.is_masking = bool(masks)
        self._secret = next((mask.secret for mask in masks if mask.secret is not None), None)
        self._drops_events = any(
            isinstance(transform, Include | Exclude) for transform in self.transforms
        )
        self._moves_tables = any(isinstance(transform, Route) for transform in self.transforms)

    def __reduce__(self) -> tuple[object, ...]:
        return (Chain, (self.transforms,))

    def __repr__(self) -> str:
        return f"Chain({[transform.__struct_config__.tag for transform in self.transforms]})"

    def __call__(self, event: ChangeEvent) -> ChangeEvent | None:
        """Return the transformed event; ``None`` if the event is excluded.

        Raises:
            TransformError: The transforms cannot be applied; the event must not pass unchanged.
        """
        match event:
            case DataChange():
                return self._change(event, _OPERATIONS[event.op])
            case HalfUpdate():
                return self._half(event)
            case SchemaChange():
                return self._schema(event)
            case Truncate():
                return self._truncate(event)
            case Tombstone():
                return self._tombstone(event)
            case Control():
                return self._control(event)
            case TransactionMarker():
                return self._marker(event) if self._passes("transaction") else None
            case Watermark():
                return event if self._passes("watermark") else None
            case LogicalMessage():
                if not self._passes("message"):
                    return None
                return _replace(event, transaction=self._transaction(event.transaction))
            case _:
                raise TypeError(f"not an event: {type(event).__name__}")

    def topic(self, table: TableId) -> str | None:
        """Return the topic of a target table, if a route sets one."""
        return self._topics.get(table)

    def feed(self, table: TableId, server: str | None) -> str | None:
        """Return the id of a target table's source: its server, or server and table if routed.

        Two source tables with one target have two ids, unless ``shards`` merges them.
        """
        source = self._feeds.get(id(table))
        if source is None or source.table is not table:
            return server
        return msgspec.json.encode([server, str(source.source)]).decode()

    def is_merged(self, table: TableId) -> bool:
        """Return whether a target table has the rows of several source tables."""
        return table in self._merged_tables

    def columns(self, table: TableId, names: Iterable[str]) -> tuple[Column, ...]:
        """Return the columns of a target table's rows without a schema.

        A column has the type of its cast, else the type ``unknown``.
        """
        changed_columns = self._changed_columns.get(table)
        types = {} if changed_columns is None else changed_columns.types
        return tuple(Column(name, types.get(name, UNKNOWN)) for name in names)

    def check_key(self, table: TableId, key: Sequence[str] | None, *, is_row: bool = False) -> None:
        """Reject a configured key that does not identify rows after the transforms.

        Args:
            table: A target table.
            key: Its key columns.
            is_row: The key consists of all columns, so that equal rows are one row.

        Raises:
            TransformError: A key column is masked or cast, a column of the row was dropped, or the
                key lacks the shard.
        """
        changed_columns = self._changed_columns.get(table)
        if changed_columns is None:
            return
        if is_row and changed_columns.is_lossy:
            reason = f"different rows of {table} may be equal after mask, cast or project"
            raise TransformError(reason, code=ReasonCode.KEY_COLUMN)
        weak_columns = changed_columns.names.intersection(key or ())
        if weak_columns:
            names = ", ".join(sorted(map(repr, weak_columns)))
            reason = f"mask, cast or project changes the key column {names} of {table}"
            raise TransformError(reason, code=ReasonCode.KEY_COLUMN)
        if key and not changed_columns.shards.issubset(key):
            names = ", ".join(sorted(map(repr, changed_columns.shards.difference(key))))
            reason = (
                f"the key of {table} lacks the column {names} of `shards: key`: add it to "
                "`options.keys`, or set `shards: apart`"
            )
            raise TransformError(reason, code=ReasonCode.KEY_COLUMN)

    def redacted(self, raw: bytes | None) -> bytes | None:
        """Return the bytes of a message for the quarantine; only a hash if there is a mask."""
        if not self.is_masking:
            return raw
        return fingerprint(raw, None if self._secret is None else self._secret.encode())

    def plan(self, table: TableId, schema: TableSchema | None, key: Key | None) -> TransformPlan:
        """Return the plan for the rows of a table."""
        last = self._last
        if last is not None and last[0] is table and last[1] is schema and last[2] is key:
            return last[3]
        name = (table, schema, key)
        plan = self._plans.get(name)
        if plan is None:
            if len(self._plans) >= _MAX_CACHED:
                self._plans.clear()
            plan = self._plans[name] = TransformPlan(self.target(table), schema, key)
        self._last = (table, schema, key, plan)
        return plan

    def target(self, table: TableId) -> TableTarget:
        """Return the target of a table's events."""
        target = self._targets.get(table)
        if target is None:
            if len(self._targets) >= _MAX_CACHED:
                self._targets.clear()
                self._feeds.clear()
                self._plans.clear()  # events of a plan have the table of its target
                self._last = None
            shadowed = table_of_shadow(table) if self._skips_shadows else None
            target = TableTarget(
                shadowed or table, self.transforms, shadow=table if shadowed else None
            )
            if target.topic is not None:
                topic = self._topics.setdefault(target.table, target.topic)
                if topic != target.topic:
                    reason = f"route gives {target.table} two topics"
                    raise TransformError(reason, code=ReasonCode.ROUTE)
            self._targets[table] = target
            target.changed_columns = self._changed_columns.setdefault(
                target.table, target.changed_columns
            )
            if target.is_merged:
                self._merged_tables.add(target.table)
            if target.table is not target.source and not target.is_merged:
                self._feeds[id(target.table)] = target
        return target

    def _refuse_shared_target(self, target: TableTarget) -> None:
        """Reject a second table with the target of another one."""
        if not self._sees_all or target.table.name is None:
            return
        first = self._sources.setdefault(target.table, target)
        if first is target or (first.is_merged and target.is_merged):
            return
        if first.source != target.source:
            reason = (
                f"{target.source} and {first.source} would be one table, {target.table}, and their "
                "keys may be equal: set `shards: key` or `shards: apart` in the route of both"
            )
            raise TransformError(reason, code=ReasonCode.TABLES_MEET)

    def _passes(self, operation: str) -> bool:
        return operation not in self.target(TableId()).refused

    @staticmethod
    def _is_refused(target: TableTarget, operation: str) -> bool:
        """Whether a change of a table is excluded.

        Raises:
            TransformError: The event has no table name, and include, exclude or route needs one.
        """
        if operation in target.refused:
            return True
        kind = target.undecided.get(operation)
        if kind is not None:
            raise TransformError(
                f"{kind}: the event does not name its table", code=ReasonCode.UNNAMED_TABLE
            )
        return False

    def _transaction(self, transaction: Transaction | None) -> Transaction | None:
        """Return a position in a transaction without the counts that transforms invalidate."""
        if transaction is None or not (self._drops_events or self._moves_tables):
            return transaction
        size, last = (None, None) if self._drops_events else (transaction.size, transaction.last)
        order = None if self._moves_tables else transaction.table_order
        if (size, last, order) == (transaction.size, transaction.last, transaction.table_order):
            return transaction
        return Transaction(transaction.id, transaction.order, order, size, last)

    def _change(self, event: DataChange, operation: str) -> DataChange | None:
        plan = self.plan(event.table, event.schema, event.key)
        target = plan.target
        if self._is_refused(target, operation):
            return None
        self._refuse_shared_target(target)
        transaction = self._transaction(event.transaction)
        if not plan.is_changed:
            plan.check(event.after, event.after_holds)
            plan.check(event.before, event.before_holds)
            if target.table is event.table and transaction is event.transaction:
                return event
            return _replace(event, table=target.table, transaction=transaction)
        plan.check(event.after, event.after_holds)
        plan.check(event.before, event.before_holds)
        return DataChange(
            event.op,
            target.table,
            plan.key,
            plan.image(event.before),
            plan.image(event.after),
            plan.schema,
            event.position,
            transaction,
            event.source,
            event.source_time_ns,
            event.process_time_ns,
            event.before_holds,
            event.after_holds,
            event.details if plan.keeps_details else NO_DETAILS,
        )

    def _half(self, event: HalfUpdate) -> HalfUpdate | None:
        change = self._change(event.change, "update")
        if change is None:
            return None
        half_change = event.change
        other_image = self.plan(half_change.table, half_change.schema, half_change.key).image(
            event.other_key
        )
        return HalfUpdate(change, other_image, event.pair)

    def _schema(self, event: SchemaChange) -> SchemaChange | None:
        changed = statements.translate(event, self._statement_target)
        if changed is None or changed is event:
            return changed
        target = self.target(event.table)
        # gh-ost's own tables have other columns than the table, and so has the next table of a list
        if target.is_shadow or "schema" in target.refused:
            return _replace(changed, schema=None, key=None, details=NO_DETAILS)
        plan = TransformPlan(target, event.schema, event.key)
        if plan.missing:
            refuse_missing(target, plan.missing)
        return _replace(changed, schema=plan.schema, key=plan.key, details=NO_DETAILS)

    def _statement_target(self, table: TableId) -> TableTarget:
        target = self.target(table)
        if "schema" not in target.refused:
            self._refuse_shared_target(target)
        return target

    def _truncate(self, event: Truncate) -> Truncate | None:
        target = self.target(event.table)
        if self._is_refused(target, "truncate"):
            return None
        statements.refuse_shard(target, "a truncate")
        self._refuse_shared_target(target)
        transaction = self._transaction(event.transaction)
        if target.table is target.source and transaction is event.transaction:
            return event
        ddl = event.ddl if target.table is target.source else None
        return _replace(event, table=target.table, transaction=transaction, ddl=ddl)

    def _tombstone(self, event: Tombstone) -> Tombstone | None:
        target = self.target(event.table)
        if "tombstone" in target.refused:
            return None
        if event.key is None:
            if target.table is target.source:
                return event
            return _replace(event, table=target.table)
        if target.table.name is None and target.is_shard_key:
            reason = "the tombstone does not name its table, so its shard is unknown"
            raise TransformError(reason, code=ReasonCode.UNNAMED_TABLE)
        self._refuse_shared_target(target)
        plan = self.plan(event.table, event.schema, Key(tuple(event.key)))
        if not plan.is_changed:
            return event if target.table is target.source else _replace(event, table=target.table)
        moved_to = plan.image(event.moved_to)
        return Tombstone(target.table, plan.image(event.key), plan.schema, moved_to)

    def _control(self, event: Control) -> Control | None:
        target = self.target(event.table)
        if "control" in target.refused:
            return None
        changes: dict[str, Any] = {"table": target.table}
        transforms = [transform for _, transform in (*target.transforms, *target.unsure_transforms)]
        if any(isinstance(transform, Mask) for transform in transforms):
            changes |= {"text": None, "details": NO_DETAILS}  # they may contain values of a row
        return _replace(event, **changes)

    def _marker(self, event: TransactionMarker) -> TransactionMarker:
        details = event.details
        if (self._drops_events or self._moves_tables) and _COLLECTIONS in details:
            # its counts have the old names of the tables
            details = {name: value for name, value in details.items() if name != _COLLECTIONS}
        transaction = self._transaction(event.transaction)
        return _replace(event, transaction=transaction or event.transaction, details=details)
