# SPDX-License-Identifier: Apache-2.0
"""The reduction of events to the capabilities of a format, which finds every loss."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Details,
    HalfUpdate,
    Image,
    Op,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    has_partial_after,
    is_complete,
    is_key_change,
    key_of,
    lists_sent_columns_only,
    moved_row,
)
from changelane.formats.contract.capabilities import Carries, SchemaDetail, SchemaPlan
from changelane.formats.contract.identity_cache import Memo
from changelane.formats.contract.losses import (
    DATABASE_AS_SCHEMA,
    LACKING_ROW,
    PARTIAL_ROW,
    SCHEMA_AS_DATABASE,
    Loss,
)
from changelane.position import Position
from changelane.schema import TableId, TableSchema
from changelane.types import UNAVAILABLE, Bytes, Unavailable
from changelane.types.values import untyped_form, untyped_text

_TIME_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

_SCHEMA_AND_NAME: Final = frozenset({"schema", "name"})
_DATABASE_AND_NAME: Final = frozenset({"database", "name"})

_PARTIAL_SCHEMA: Final = (
    "absent",
    "readers take the columns of the update for all columns of the table",
)
_WRITTEN_AS_TEXT: Final = ("type:unknown", "a value without a type is written as text")


Reduced = tuple[tuple[ChangeEvent, ...], tuple[Loss, ...]]


def _unit(field: str, unit: str) -> tuple[int, Loss]:
    return (_TIME_UNITS[unit], (field, f"cut to {unit}")) if unit else (0, (field, "not written"))


class Reducer:
    """Reduces events to the capabilities of a format. One instance serves one codec.

    ``plan`` returns the :class:`SchemaPlan` of a schema. ``units`` has for each time the size of
    its unit in nanoseconds (0 = the time is not carried) and the loss of smaller digits.
    """

    def __init__(self, carries: Carries) -> None:
        self._carries = carries
        # without a schema, a format that returns equal bytes has its own mark of them
        self._has_bytes = carries.schema is SchemaDetail.NONE and Bytes in carries.types
        self.plan = Memo(lambda schema: SchemaPlan(schema, carries))
        self._tables = Memo(self._with_losses(self._table))
        self._sources = Memo(self._with_losses(self._source))
        self.units = {
            "source_time_ns": _unit("source_time", carries.source_time),
            "process_time_ns": _unit("process_time", carries.process_time),
        }

    @staticmethod
    def _with_losses(reduce: Callable[..., Any]) -> Callable[[Any], tuple[Any, dict[Loss, None]]]:
        def inner(part: Any) -> tuple[Any, dict[Loss, None]]:
            losses: dict[Loss, None] = {}
            return reduce(part, losses), losses

        return inner

    def __call__(self, event: ChangeEvent) -> Reduced:
        """Return the part of *event* that the format carries (up to two events), and the losses."""
        losses: dict[Loss, None] = {}
        if isinstance(event, DataChange):
            return tuple(self._data(event, losses)), tuple(losses)
        kind = event.__struct_config__.tag
        if kind not in self._carries.kinds:
            return (), ((f"event:{kind}", "the format has no such message"),)
        if isinstance(event, HalfUpdate):
            return self._half(event, losses), tuple(losses)
        return (self._other(event, losses),), tuple(losses)

    def _half(self, half: HalfUpdate, losses: dict[Loss, None]) -> tuple[ChangeEvent, ...]:
        changes = tuple(self._data(half.change, losses))
        pair = half.pair if self._carries.pair else None
        if pair != half.pair:
            losses["pair", "the value that joins the halves of an update is not written"] = None
            if half.other_key is None:
                return changes  # as halves without pair and other_key, equal keys would join them
        return tuple(msgspec.structs.replace(half, change=change, pair=pair) for change in changes)

    def _other(self, event: ChangeEvent, losses: dict[Loss, None]) -> ChangeEvent:
        changes: dict[str, object] = {}
        for field, reduce in (
            ("table", self._table),
            ("position", self._position),
            ("transaction", self.transaction),
            ("source", self._source),
        ):
            if hasattr(event, field):
                changes[field] = reduce(getattr(event, field), losses)
        if isinstance(event, TransactionMarker) and changes["transaction"] is None:
            changes["transaction"] = Transaction("")
        details: Details = getattr(event, "details", NO_DETAILS)
        changes["details"] = self._details(details, getattr(event, "source", None), losses)
        for field in ("source_time_ns", "process_time_ns"):
            if hasattr(event, field):
                changes[field] = self._time(field, getattr(event, field), losses)
        schema: TableSchema | None = getattr(event, "schema", None)
        if schema is not None:
            plan = self.plan(schema)
            changes["schema"] = plan.schema
            losses.update(plan.losses)
            if isinstance(event, Tombstone) and event.key is not None:
                changes["key"] = plan.image(event.key, losses)
        return msgspec.structs.replace(event, **changes)

    def _data(self, event: DataChange, losses: dict[Loss, None]) -> Iterator[DataChange]:
        carries = self._carries
        op = self._operation(event.op, losses)
        if op is None:
            return
        after, schema = event.after, event.schema
        before, is_split = self._before(event, op, losses)
        if is_split and before is not None and after is not None:
            after = moved_row(before, after)
            if schema is not None and carries.absent and not schema.names <= after.keys():
                losses[LACKING_ROW] = None
        before_holds, after_holds = event.before_holds, event.after_holds
        if schema is not None:
            plan = self.plan(schema)
            if plan.losses:
                losses.update(plan.losses)
            fill = op is Op.DELETE and not carries.delete_partial
            before = None if before is None else plan.image(before, losses, fill=fill)
            after = None if after is None else plan.image(after, losses, fill=not carries.absent)
            schema = plan.schema
            if schema is not None and not self._keeps_partial_schema(event, losses):
                before_holds = after_holds = Completeness.UNKNOWN
        else:
            before = None if before is None else self.untyped(before, losses)
            after = None if after is None else self.untyped(after, losses)
        if schema is None and not carries.partial_after and has_partial_after(event):
            losses[PARTIAL_ROW] = None
            after_holds = Completeness.FULL
        key = event.key
        if key is not None and not carries.key:
            losses["key", "the format does not name key columns"] = None
            key = None
        table, lost = self._tables(event.table)
        if lost:
            losses.update(lost)
        source, lost = self._sources(event.source)
        if lost:
            losses.update(lost)
        reduced = DataChange(
            op,
            table,
            key,
            before,
            after,
            schema,
            self._position(event.position, losses),
            self.transaction(event.transaction, losses),
            source,
            self._time("source_time_ns", event.source_time_ns, losses),
            self._time("process_time_ns", event.process_time_ns, losses),
            before_holds,
            after_holds,
            self._details(event.details, event.source, losses),
        )
        if not is_split:
            yield reduced
            return
        losses["key_change", "written as a delete and an insert"] = None
        yield from self._halves(event, reduced)

    def _operation(self, op: Op, losses: dict[Loss, None]) -> Op | None:
        """Return the written operation; ``None`` if the format has none."""
        operations = self._carries.operations
        if op in operations:
            return op
        if op is Op.READ and Op.CREATE in operations:
            losses["operation:r", "written as an insert"] = None
            return Op.CREATE
        losses[f"operation:{op.value}", "the format has no such operation"] = None
        return None

    def _before(
        self, event: DataChange, op: Op, losses: dict[Loss, None]
    ) -> tuple[Image | None, bool]:
        """Return the written before image, and whether a key change is written as two changes."""
        carries, before = self._carries, event.before
        if before is None or op is not Op.UPDATE:
            return before, False
        key_change = is_key_change(event)
        partial = not is_complete(before, event.schema, event.before_holds)
        may_lack = carries.partial_before or (key_change and carries.key_change_partial)
        if carries.before and (may_lack or not partial):
            return before, key_change and not carries.key_change
        if not key_change:
            losses["before", "a partial image" if partial else "not written"] = None
            return None, False
        return before, True

    def _keeps_partial_schema(self, event: DataChange, losses: dict[Loss, None]) -> bool:
        """Return whether the reduced event states that its schema lacks columns of the table."""
        if not lists_sent_columns_only(event):
            return False
        if event.op is Op.UPDATE and not self._carries.partial_schema:
            losses[_PARTIAL_SCHEMA] = None
        return self._carries.partial_schema

    def _halves(self, event: DataChange, update: DataChange) -> Iterator[DataChange]:
        """Yield the delete and the insert that replace a reduced key change."""
        before = update.before or {}
        if not self._carries.delete_partial:
            before = key_of(event, before) or before
        yield msgspec.structs.replace(update, op=Op.DELETE, before=before, after=None)
        yield msgspec.structs.replace(update, op=Op.CREATE, before=None)

    def untyped(self, image: Image, losses: dict[Loss, None]) -> Image:
        """Return the reduced form of an image without a schema."""
        carries = self._carries
        result = dict(image)
        for name, value in image.items():
            value_class = value.__class__
            if value_class is str or value is None:
                continue
            if value_class is int and carries.text_only:
                losses[_WRITTEN_AS_TEXT] = None
                result[name] = str(value)
            elif value is UNAVAILABLE and not carries.unavailable:
                losses["unavailable", "written as an absent column"] = None
                del result[name]
            elif carries.text_only and not isinstance(value, str | Unavailable):
                losses[_WRITTEN_AS_TEXT] = None
                result[name] = untyped_text(value)
            elif value_class is not bytes or not self._has_bytes:
                result[name] = untyped_form(value)
                if result[name] is not value:
                    losses["type:unknown", "a value without a type is written as JSON"] = None
        return result

    def _table(self, table: TableId, losses: dict[Loss, None]) -> TableId:
        parts = self._carries.table
        if len(parts) == 3:
            return table
        # a database of MySQL is what other databases call a schema
        if parts == _SCHEMA_AND_NAME and table.schema is None and table.database:
            losses[DATABASE_AS_SCHEMA] = None
            return TableId(None, table.database, table.name)
        if parts == _DATABASE_AND_NAME and table.database is None and table.schema:
            losses[SCHEMA_AS_DATABASE] = None
            return TableId(table.schema, None, table.name)
        for part in ("database", "schema", "name"):
            if part not in parts and getattr(table, part) is not None:
                losses[f"table.{part}", "not written"] = None
        return TableId(
            table.database if "database" in parts else None,
            table.schema if "schema" in parts else None,
            table.name if "name" in parts else None,
        )

    def _position(self, position: Position | None, losses: dict[Loss, None]) -> Position | None:
        if position is None:
            return None
        domain = position.__struct_config__.tag
        if domain in self._carries.positions:
            return position
        losses["position", f"a {domain} position is not written"] = None
        return None

    def transaction(
        self, transaction: Transaction | None, losses: dict[Loss, None]
    ) -> Transaction | None:
        """Return the reduced position in a transaction."""
        fields = self._carries.transaction
        if transaction is None:
            return None
        changes: dict[str, object] = {}
        for field in ("id", "order", "table_order", "size", "last"):
            if field not in fields and getattr(transaction, field) not in (None, ""):
                losses[f"transaction.{field}", "not written"] = None
                changes[field] = None
        if "id" not in fields:
            return None
        return msgspec.structs.replace(transaction, **changes) if changes else transaction

    def _source(self, source: Source, losses: dict[Loss, None]) -> Source:
        fields, stamp = self._carries.source, self._carries.stamp
        if len(fields) == 5:
            return source
        values: list[str | None] = []
        for field in ("product", "connector", "server", "version", "snapshot"):
            value = getattr(source, field)
            stamped = getattr(stamp, field)
            if field in fields and not (field == "version" and self._is_foreign(source)):
                values.append(value)
                continue
            if value is not None and value != stamped:
                losses[f"source.{field}", "not written"] = None
            values.append(stamped)
        return Source(*values)

    def _time(self, field: str, value: int | None, losses: dict[Loss, None]) -> int | None:
        if value is None:
            return None
        size, loss = self.units[field]
        if size == 1:
            return value
        if not size:
            losses[loss] = None
            return None
        if remainder := value % size:
            losses[loss] = None
        return value - remainder

    def _is_foreign(self, source: Source) -> bool:
        """Return whether an event comes from another connector than the format's own."""
        format_connector = self._carries.stamp.connector
        return format_connector is not None and source.connector not in (None, format_connector)

    def _details(
        self, details: Details, source: Source | None, losses: dict[Loss, None]
    ) -> Details:
        if not details or (self._carries.details and not (source and self._is_foreign(source))):
            return details
        losses["details", "further fields of the producer are not written"] = None
        return NO_DETAILS
