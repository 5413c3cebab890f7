# SPDX-License-Identifier: Apache-2.0
"""Columns that a source added without a DDL statement, and their values in older rows.

PostgreSQL's log contains no ``ALTER TABLE``, and neither do the events of some other sources. A new
column first appears in the schema of an event. Older rows certainly have NULL in it if it is
nullable and has no default. Otherwise the source gave older rows a value that no event contains:
a default or, if another column disappeared at the same place, perhaps the values of that column
after a rename. Such values are unknown.

The table stores an :class:`Addition` and rewrites no row. The column is unknown in each row with a
base order below that of the addition, unless the row lists an own order for the column.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from changelane.event import (
    OWN_VERSION,
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Op,
    lists_sent_columns_only,
)
from changelane.position import is_of_stream
from changelane.schema import Column
from changelane.types import UNKNOWN

_AFTER: Final = b"\x02"
"""A phase above the phases of events, for orders between two events."""


class Cause(StrEnum):
    """The reason why older rows may have a value other than NULL in a new column."""

    DEFAULT = "default"
    """The schema declares a literal default, which older rows have."""
    COMPUTED = "computed"
    """The schema declares a default that an expression may have computed."""
    NOT_NULL = "not_null"
    """The column is NOT NULL, and the schema declares no default."""
    RENAMED = "renamed"
    """Another column disappeared at the same place."""
    SERVERS = "servers"
    """Several servers or tables feed the table, and each adds the column at a time of its own."""
    UNDECLARED = "untold"
    """The events contain neither the nullability of the column nor its default."""


class DefaultKind(StrEnum):
    """The kind of a column's default in a schema."""

    NONE = "none"
    LITERAL = "literal"
    COMPUTED = "computed"


class ColumnTraits(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column's declaration in a schema.

    Attributes:
        name: The column, as the table spells it.
        nullable: ``None`` if the schema does not declare it.
        default: The kind of its default; ``None`` if unknown.
        value: The literal default, as JSON of a row with one field ``v``, and its Spark type.
    """

    name: str
    nullable: bool | None = None
    default: DefaultKind | None = DefaultKind.NONE
    value: tuple[str, str] | None = None


class SchemaColumns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of a table in the events of one schema.

    Attributes:
        order: The order of the oldest event with this schema.
        columns: The columns by their names in lower case.
        is_complete: The schema lists all columns of the table; else a missing one proves nothing.
        last: The order of the newest event with this schema; empty if it equals *order*.
    """

    order: bytes
    columns: Mapping[str, ColumnTraits]
    is_complete: bool = True
    last: bytes = b""

    @property
    def end(self) -> bytes:
        """The order of the newest event with this schema."""
        return self.last or self.order


class Addition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column that was added to a table with rows.

    Attributes:
        column: The column, as the table spells it.
        order: The column is unknown in rows below this order that list no order for it.
        cause: The reason why its value in older rows may not be NULL.
        dropped: The columns that disappeared at the same place.
        value: The default, if known, as JSON of a row with one field ``v``, and its Spark type.
    """

    column: str
    order: bytes
    cause: Cause
    dropped: tuple[str, ...] = msgspec.field(default=(), name="gone")
    value: tuple[str, str] | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the value of older rows is unknown."""
        return self.value is None


def columns_of_schema(
    order: bytes, columns: Iterable[ColumnTraits], *, is_complete: bool = True, last: bytes = b""
) -> SchemaColumns:
    """Return the columns of a schema by their names in lower case."""
    columns_by_lower = {column.name.lower(): column for column in columns}
    return SchemaColumns(order, columns_by_lower, is_complete, last)


def additions(
    before: SchemaColumns | None,
    later: Iterable[SchemaColumns],
    known_columns: Collection[str] = (),
) -> list[Addition]:
    """Return the columns that were added to a table, with their values in older rows.

    The result omits nullable columns without a default, because older rows have NULL in them.

    Args:
        before: The newest earlier schema of the table; ``None`` if the table is new: then its first
            schema is the oldest complete one of *later*.
        later: The schemas of a batch.
        known_columns: Names, in lower case, of all earlier columns of the table.
    """
    columns: dict[str, Addition] = {}
    names = set(known_columns)
    last = before
    for schema in sorted(later, key=lambda schema: schema.end):
        if last is None:
            if schema.is_complete:
                last = schema
            names.update(schema.columns)
            continue
        order = schema.order
        if order <= last.end and not is_of_stream(order):
            # a snapshot sorts below the stream, but has the columns of a later time
            order = last.end[:-1] + _AFTER
        dropped_traits = (
            [traits for name, traits in last.columns.items() if name not in schema.columns]
            if schema.is_complete
            else []
        )
        for name, traits in schema.columns.items():
            if name not in names and (cause := _cause(traits, dropped_traits)) is not None:
                renamed = (
                    tuple(column.name for column in dropped_traits)
                    if cause is Cause.RENAMED
                    else ()
                )
                value = traits.value if cause is Cause.DEFAULT else None
                columns[name] = Addition(traits.name, order, cause, renamed, value)
        names.update(schema.columns)
        if schema.is_complete and schema.end > last.end:
            last = schema
    return list(columns.values())


def newest_schema(
    before: SchemaColumns | None, later: Iterable[SchemaColumns]
) -> SchemaColumns | None:
    """Return the newest complete schema of a table, including those of a batch."""
    complete = [schema for schema in later if schema.is_complete]
    if before is not None:
        complete.append(before)
    return max(complete, key=lambda schema: schema.end, default=None)


def _cause(traits: ColumnTraits, dropped_traits: Sequence[ColumnTraits]) -> Cause | None:
    if traits.default is DefaultKind.LITERAL:
        # a rename keeps the default, too
        is_possible = any(
            column.default is None or _default(column) == _default(traits)
            for column in dropped_traits
        )
        return Cause.RENAMED if is_possible else Cause.DEFAULT
    if dropped_traits:
        return Cause.RENAMED
    if traits.default is DefaultKind.COMPUTED:
        return Cause.COMPUTED
    if traits.nullable is None:
        return Cause.UNDECLARED
    return None if traits.nullable else Cause.NOT_NULL


def _default(traits: ColumnTraits) -> tuple[DefaultKind | None, tuple[str, str] | None]:
    return traits.default, traits.value


def unlisted_order(column: str, base: bytes, added: Iterable[Addition]) -> bytes:
    """Return the order of a column that a row does not list: its base order; empty if unknown.

    The base order of a row that moved to another key begins with the order of that key change. The
    last bytes of an inherited value's order are the order of the event with the value.
    """
    for addition in added:
        is_older = base[-len(addition.order) :] < addition.order
        if addition.is_unknown and addition.column == column and is_older:
            return b""
    return base


def later_additions(
    order: bytes, names: Collection[str], added: Iterable[Addition]
) -> tuple[Addition, ...]:
    """Return the columns that a full-row event lacks because they were added after it.

    Args:
        order: The order of the event.
        names: The columns of the event, in lower case.
        added: The additions of its table.
    """
    return tuple(
        addition
        for addition in added
        if order < addition.order and addition.column.lower() not in names
    )


class ColumnHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The column history of a source table, stored with its lake table.

    Attributes:
        newest: The newest complete schema.
        known_columns: All columns that any event contained, in lower case.
        added: The columns that were added while the table had rows.
    """

    newest: SchemaColumns | None = None
    known_columns: tuple[str, ...] = msgspec.field(default=(), name="known")
    added: tuple[Addition, ...] = ()

    def has_new(self, listings: Iterable[SchemaColumns]) -> bool:
        """Whether one of the schemas contains a column that is new in an existing table."""
        known_columns = set(self.known_columns)
        return self.newest is not None and any(
            not known_columns >= listing.columns.keys() for listing in listings
        )

    def reaching(self, high: bytes) -> "ColumnHistory":
        """Return the history with *high* as the newest order of its newest schema."""
        if self.newest is None:
            return self
        newest = msgspec.structs.replace(self.newest, last=max(high, self.newest.end))
        return msgspec.structs.replace(self, newest=newest)

    def after(self, listings: Sequence[SchemaColumns], high: bytes = b"") -> "ColumnHistory":
        """Return the history after a batch with events of these schemas.

        Args:
            listings: The schemas.
            high: The newest order of all events, if orders are offsets of several partitions:
                older rows of another partition may have greater offsets.
        """
        new = additions(self.newest, listings, self.known_columns)
        if high:
            above = high[:-1] + _AFTER
            new = [
                msgspec.structs.replace(addition, order=max(addition.order, above))
                for addition in new
            ]
        names = {name for schema in listings for name in schema.columns}
        return ColumnHistory(
            newest_schema(self.newest, listings),
            tuple(sorted({*self.known_columns, *names})),
            (*self.added, *new),
        )

    def without(self, columns: Iterable[str]) -> "ColumnHistory":
        """Return the history without the additions of some columns, given in lower case."""
        stated = set(columns)
        other_additions = tuple(
            addition for addition in self.added if addition.column.lower() not in stated
        )
        return msgspec.structs.replace(self, added=other_additions)


def lists_columns(event: DataChange, *, omits_nulls: bool = False) -> bool:
    """Whether an event lists all columns of its table, as they are declared.

    Args:
        event: The event.
        omits_nulls: The event's format omits columns that are NULL.
    """
    if event.schema is not None:
        # without its default, a renamed column would look like a dropped one
        is_declared = event.source.version != OWN_VERSION
        return is_declared and not lists_sent_columns_only(event)
    if event.op is Op.DELETE:
        return event.before_holds in {Completeness.FULL, Completeness.KEY}
    return event.after_holds is Completeness.FULL and not omits_nulls


def schemas_of(upserts: Iterable[tuple[ChangeEvent, bytes]]) -> list[SchemaColumns]:
    """Return the schemas of events with rows, from pairs of event and order."""
    listings: dict[tuple[object, ...], SchemaColumns] = {}
    for event, order in upserts:
        change = event.change if isinstance(event, HalfUpdate) else event
        if not isinstance(change, DataChange) or change.after is None:
            continue
        columns = (
            [Column(name, UNKNOWN) for name in {**change.after, **(change.before or {})}]
            if change.schema is None
            else change.schema.columns
        )
        traits = [
            ColumnTraits(
                column.name,
                column.nullable,
                default := default_of(column),
                (repr(column.default), str(column.type))
                if default is DefaultKind.LITERAL
                else None,
            )
            for column in columns
        ]
        is_complete = lists_columns(change)
        place = (*traits, is_complete)
        reach = (
            (order, order)
            if (earlier := listings.get(place)) is None
            else (earlier.order, earlier.end)
        )
        first, last = min(order, *reach), max(order, *reach)
        listings[place] = columns_of_schema(first, traits, is_complete=is_complete, last=last)
    return list(listings.values())


_PLACEHOLDERS: Final = (
    0,
    "",
    "{}",
    "00000000-0000-0000-0000-000000000000",
    dt.date(1970, 1, 1),
    dt.datetime(1970, 1, 1),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.timedelta(0),
)


def default_of(column: Column) -> DefaultKind:
    """Return the kind of a column's default.

    For an expression such as ``now()``, ``nextval(...)`` or ``gen_random_uuid()``, Debezium's
    connector for PostgreSQL declares a placeholder as the default: 0, empty text or 1970-01-01
    (``PostgresDefaultValueConverter``). So such a value counts as computed. ``false`` counts as a
    literal, because the default of a flag is a constant.
    """
    value = column.default
    if value is msgspec.UNSET or value is None:
        return DefaultKind.COMPUTED if column.generated else DefaultKind.NONE
    if column.generated:
        return DefaultKind.COMPUTED
    if not isinstance(value, bool) and _is_placeholder(value):
        return DefaultKind.COMPUTED
    return DefaultKind.LITERAL


def _is_placeholder(value: object) -> bool:
    if isinstance(value, bytes):
        return not any(value)
    return any(value == placeholder for placeholder in _PLACEHOLDERS)
