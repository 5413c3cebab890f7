# SPDX-License-Identifier: Apache-2.0
"""What a format can express, as data, and what is lost when an event meets it.

:class:`Carries` is the declaration; :class:`Reducer` turns an event into what survives and names
the rest as losses, each a pair (field, reason); :mod:`changelane.losses` declares which of them
are of data. Writers get reduced events only, so nothing outside the declaration can reach a
message, and the conformance kit uses the same reduction as the expectation of its round trips.
"""

import decimal
import math
from collections.abc import Callable, Iterator
from enum import StrEnum
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
    is_complete,
    is_key_change,
    key_of,
)
from changelane.losses import Loss
from changelane.memo import Memo
from changelane.position import Position
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Decimal, Float, LogicalType, String, Unavailable, Value
from changelane.values import number_form, untyped_form, untyped_text, written_form


class AbsentMeans(StrEnum):
    """What a column that is missing from an after image means in a format (B-01)."""

    NULL = "null"
    UNCHANGED = "unchanged"
    ERROR = "error"


class SchemaDetail(StrEnum):
    """How much of a table's schema a message tells."""

    NONE = "none"
    SOURCE_TYPES = "source_types"
    FULL = "full"


class Extreme(StrEnum):
    """Values that Python or many databases have no native form for."""

    NON_FINITE = "non_finite"
    """NaN and infinity of floats."""
    NON_FINITE_DECIMAL = "non_finite_decimal"
    TEMPORAL_TEXT = "temporal_text"
    """Any date or timestamp that is text here: infinity, zero dates, far years."""


_TIME_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class Carries(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a format. The defaults carry nothing.

    Attributes:
        operations: Row operations that are written; an operation outside is a loss of the event.
        kinds: Event kinds besides row changes, by their tag (``schema``, ``truncate`` ...).
        before: Update events keep a complete before image.
        partial_before: Before images that lack columns are kept as they are.
        key_change_partial: So are those of key changes, which are written as deletes.
        delete_partial: A delete may hold some columns only.
        absent: A column that is not in an image stays apart from NULL.
        unavailable: There is a marker for :data:`~changelane.types.UNAVAILABLE`.
        absent_means: What the decoder makes of a missing column.
        schema: How much of the schema travels.
        column_flags: Nullability, defaults and generated columns travel.
        untyped_nulls: A column that holds only NULL may come back with another type.
        unknown_nullability: That nobody knows whether a column may be NULL travels as well.
        types: Logical types (classes) whose values come back equal; others become text.
        forms: Other types that are written in a form of :data:`~changelane.values.FORMS`.
        extremes: Which extreme values are carried.
        pair: What pairs two halves of an update travels.
        key: The key columns' names travel.
        key_change: An update may change the key.
        table: Parts of the table's name.
        positions: Domains of positions (``mysql``, ``postgresql`` ...).
        shared_positions: Those of them that several changes of rows may have here, though they are
            the names of one elsewhere (:class:`~changelane.position.Names`).
        transaction: Fields of the transaction.
        source: Fields of the source.
        products: Products whose changes are written; others are refused. Empty = all.
        stamp: What the decoder says about every message's source. When it names the connector,
            the version and the details of another connector's events are not carried.
        source_time: Unit of the source time, empty when it does not travel.
        process_time: Unit of the process time, empty when it does not travel.
        details: The producer's own further fields travel inside this family.
        text_only: Values without a type travel as text.
    """

    operations: frozenset[Op] = frozenset()
    kinds: frozenset[str] = frozenset()
    before: bool = False
    partial_before: bool = False
    key_change_partial: bool = False
    delete_partial: bool = True
    absent: bool = False
    unavailable: bool = False
    absent_means: AbsentMeans = AbsentMeans.UNCHANGED
    schema: SchemaDetail = SchemaDetail.NONE
    column_flags: bool = False
    untyped_nulls: bool = False
    unknown_nullability: bool = False
    types: frozenset[type[LogicalType]] = frozenset()
    forms: frozenset[tuple[type[LogicalType], str]] = frozenset()
    extremes: frozenset[Extreme] = frozenset()
    pair: bool = False
    key: bool = False
    key_change: bool = False
    table: frozenset[str] = frozenset()
    positions: frozenset[str] = frozenset()
    shared_positions: frozenset[str] = frozenset()
    transaction: frozenset[str] = frozenset()
    source: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()
    stamp: Source = Source()
    source_time: str = ""
    process_time: str = ""
    details: bool = False
    text_only: bool = False


Reduced = tuple[tuple[ChangeEvent, ...], tuple[Loss, ...]]


def _unit(field: str, unit: str) -> tuple[int, Loss]:
    return (_TIME_UNITS[unit], (field, f"cut to {unit}")) if unit else (0, (field, "not written"))


class Reducer:
    """Reduces events to what a declaration carries. One instance serves one codec.

    ``plan`` reduces a schema's images; ``units`` are size in nanoseconds (0 = none) and loss.
    """

    def __init__(self, carries: Carries) -> None:
        self._carries = carries
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
        """Return what survives of *event*, as no, one or two events, and the losses."""
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
            losses["pair", "what joins the halves of an update is not written"] = None
            if half.other_key is None:
                return changes  # a half without a pair would mean that the key stays
        return tuple(msgspec.structs.replace(half, change=one, pair=pair) for one in changes)

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
        op = event.op
        if op not in carries.operations:
            if op is Op.READ and Op.CREATE in carries.operations:
                losses["operation:r", "written as an insert"] = None
                op = Op.CREATE
            else:
                losses[f"operation:{op.value}", "the format has no such operation"] = None
                return
        before, after, schema = event.before, event.after, event.schema
        key_change = before is not None and op is Op.UPDATE and is_key_change(event)
        split = key_change and not carries.key_change
        if before is not None and op is Op.UPDATE:
            partial = not is_complete(before, schema, event.before_holds)
            may_lack = carries.partial_before or (key_change and carries.key_change_partial)
            if not carries.before or (partial and not may_lack):
                if key_change:
                    split = True
                else:
                    losses["before", "a partial image" if partial else "not written"] = None
                    before = None
        before_holds, after_holds = event.before_holds, event.after_holds
        if schema is not None:
            plan = self.plan(schema)
            if plan.losses:
                losses.update(plan.losses)
            fill = op is Op.DELETE and not carries.delete_partial
            before = None if before is None else plan.image(before, losses, fill=fill)
            fill = not carries.absent
            after = None if after is None else plan.image(after, losses, fill=fill)
            schema = plan.schema
            if schema is not None:
                before_holds = after_holds = Completeness.UNKNOWN
        else:
            before = None if before is None else self.untyped(before, losses)
            after = None if after is None else self.untyped(after, losses)
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
        if not split:
            yield reduced
            return
        losses["key_change", "written as a delete and an insert"] = None
        yield from self._halves(event, reduced)

    def _halves(self, event: DataChange, update: DataChange) -> Iterator[DataChange]:
        """Return the delete and the insert that a reduced *update* of a key is written as."""
        before = update.before or {}
        if not self._carries.delete_partial:
            before = key_of(event, before) or before
        yield msgspec.structs.replace(update, op=Op.DELETE, before=before, after=None)
        yield msgspec.structs.replace(update, op=Op.CREATE, before=None)

    def untyped(self, image: Image, losses: dict[Loss, None]) -> Image:
        """Return what survives of an image without a schema."""
        carries = self._carries
        result: dict[str, Value] = {}
        for name, value in image.items():
            if value is None or type(value) is str:
                result[name] = value
            elif value is UNAVAILABLE and not carries.unavailable:
                losses["unavailable", "written as an absent column"] = None
            elif carries.text_only and not isinstance(value, str | Unavailable | None):
                losses["type:unknown", "a value without a type is written as text"] = None
                result[name] = untyped_text(value)
            else:
                result[name] = untyped_form(value)
                if result[name] is not value:
                    losses["type:unknown", "a value without a type is written as JSON"] = None
        return result

    def _table(self, table: TableId, losses: dict[Loss, None]) -> TableId:
        kept = self._carries.table
        if len(kept) == 3:
            return table
        for part in ("database", "schema", "name"):
            if part not in kept and getattr(table, part) is not None:
                losses[f"table.{part}", "not written"] = None
        return TableId(
            table.database if "database" in kept else None,
            table.schema if "schema" in kept else None,
            table.name if "name" in kept else None,
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
        """Return what survives of the place in a transaction."""
        kept = self._carries.transaction
        if transaction is None:
            return None
        changes: dict[str, object] = {}
        for field in ("id", "order", "table_order", "size", "last"):
            if field not in kept and getattr(transaction, field) not in (None, ""):
                losses[f"transaction.{field}", "not written"] = None
                changes[field] = None
        if "id" not in kept:
            return None
        return msgspec.structs.replace(transaction, **changes) if changes else transaction

    def _source(self, source: Source, losses: dict[Loss, None]) -> Source:
        kept, stamp = self._carries.source, self._carries.stamp
        if len(kept) == 5:
            return source
        values: list[str | None] = []
        for field in ("product", "connector", "server", "version", "snapshot"):
            value = getattr(source, field)
            stamped = getattr(stamp, field)
            if field in kept and not (field == "version" and self._is_foreign(source)):
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
        if rest := value % size:
            losses[loss] = None
        return value - rest

    def _is_foreign(self, source: Source) -> bool:
        """Say whether an event comes from another connector than the format's own."""
        own = self._carries.stamp.connector
        return own is not None and source.connector not in (None, own)

    def _details(
        self, details: Details, source: Source | None, losses: dict[Loss, None]
    ) -> Details:
        if not details or (self._carries.details and not (source and self._is_foreign(source))):
            return details
        losses["details", "the producer's own further fields are not written"] = None
        return NO_DETAILS


class SchemaPlan:
    """The reduction of one schema's images, compiled once."""

    def __init__(self, schema: TableSchema, carries: Carries) -> None:
        self._carries = carries
        self._names = schema.names
        self.losses: dict[Loss, None] = {}
        columns: list[Column] = []
        self._texts: dict[str, Callable[[Value], Value]] = {}
        forms = dict(carries.forms)
        self._checks: dict[str, Callable[[Value], Loss | None]] = {}
        is_untyped = carries.schema is SchemaDetail.NONE and not carries.text_only
        for column in schema.columns:
            kind = column.type
            if type(kind) not in carries.types:
                what, self._texts[column.name] = written_form(kind, forms.get(type(kind)))
                loss = (f"type:{_type_name(kind)}", f"no such type; the value is written as {what}")
                self.losses[loss] = None
                kind = String()
            elif check := _extreme_check(kind, carries):
                self._checks[column.name] = check
            if is_untyped and isinstance(kind, Float | Decimal):
                self._texts[column.name] = _untyped_number
            columns.append(self._column(column, kind))
        self.schema: TableSchema | None = TableSchema(tuple(columns))
        if carries.schema is SchemaDetail.NONE:
            self.losses["schema", "column types are not written"] = None
            self.schema = None

    def _column(self, column: Column, kind: LogicalType) -> Column:
        carries = self._carries
        changes: dict[str, object] = {"type": kind}
        if not carries.column_flags:
            flags = ("nullable", None), ("generated", False), ("default", msgspec.UNSET)
            for field, empty in flags:
                if getattr(column, field) is not empty:
                    self.losses[f"schema.{field}", "not written"] = None
                    changes[field] = empty
        elif column.nullable is None and not carries.unknown_nullability:
            self.losses["schema.nullable", "unknown; written as may be NULL"] = None
            changes["nullable"] = True
        return msgspec.structs.replace(column, **changes)

    def image(self, image: Image, losses: dict[Loss, None], *, fill: bool = False) -> Image:
        """Return what survives of an image; *fill* puts NULL where a column is missing."""
        image = self._kept(image, losses)
        if fill and (missing := self._names - image.keys()):
            losses["absent", "a missing column is written as NULL"] = None
            return {**image, **dict.fromkeys(sorted(missing))}
        return image

    def _kept(self, image: Image, losses: dict[Loss, None]) -> Image:
        if not self._carries.unavailable and Unavailable in map(type, image.values()):
            losses["unavailable", "written as an absent column"] = None
            image = {name: value for name, value in image.items() if value is not UNAVAILABLE}
        if not self._texts and not self._checks:
            return image
        result = dict(image)
        for name, write in self._texts.items():
            if (value := result.get(name)) is not None and value is not UNAVAILABLE:
                result[name] = write(value)
        for name, check in self._checks.items():
            known = (value := result.get(name)) is not None and value is not UNAVAILABLE
            if known and (loss := check(value)):
                losses[loss] = None
                result[name] = None
        return result


def _type_name(kind: LogicalType) -> str:
    return str(kind).partition("(")[0].partition("<")[0]


def _untyped_number(value: Value) -> Value:
    """Return a number whose type no column says as it comes back: as what it says.

    One that is not finite stays: :func:`_extreme_check` decides about it next, and knows it only
    as a number, not as the text that :func:`~changelane.values.number_form` makes of it.
    """
    is_number = isinstance(value, float | decimal.Decimal) and math.isfinite(value)
    return number_form(value) if is_number else value


_TEMPORAL: Final = frozenset({"Date", "Timestamp", "InstantType"})


def _extreme_check(kind: LogicalType, carries: Carries) -> Callable[[Value], Loss | None] | None:
    name = type(kind).__name__
    if name in _TEMPORAL and Extreme.TEMPORAL_TEXT not in carries.extremes:
        loss = (f"value:{_type_name(kind)}", "outside the years 1 to 9999; written as null")
        return lambda value: loss if isinstance(value, str) else None
    if name == "Float" and Extreme.NON_FINITE not in carries.extremes:
        loss = ("value:float", "NaN or infinity; written as null")
        return lambda value: None if math.isfinite(value) else loss  # type: ignore[arg-type]
    if name == "Decimal" and Extreme.NON_FINITE_DECIMAL not in carries.extremes:
        loss = ("value:decimal", "NaN or infinity; written as null")
        return lambda value: (
            loss if isinstance(value, decimal.Decimal) and not value.is_finite() else None
        )
    return None
